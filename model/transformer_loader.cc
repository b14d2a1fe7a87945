#include "model/transformer_loader.h"

#include <algorithm>
#include <optional>

#include "absl/algorithm/container.h"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/process_limits.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "base/thread_pool.h"
#include "kernels/blocks.h"
#include "kernels/quantize.h"
#include "model/checkpoint/model_families.h"
#include "model/checkpoint/model_tensors.h"
#include "tandem/field_error.h"

namespace tandem {
namespace {

constexpr int64_t kLongRow = 256;  // a multiple of the block size of every format

}  // namespace

void TransformerWeights::ForgetPacked() {
  while (!unpacked.empty() && unpacked.front().weight->unpacked.empty()) {
    for (const std::string& tensor : unpacked.front().tensors) source->Forget(tensor);
    unpacked.pop_front();
  }
}

TransformerLoader::TransformerLoader(const ModelFiles& files, Backend* backend,
                                     const Transformer::LoadOptions& options)
    : files_(files),
      backend_(backend),
      options_(options),
      own_(OwnPartsOf(files.config, /*num_head_tokens=*/0, options.group)),
      loaded_(std::make_unique<TransformerWeights>()) {
  loaded_->source = files.weights;
}

absl::StatusOr<std::unique_ptr<TransformerWeights>> TransformerLoader::Load() {
  RETURN_IF_ERROR(Fill());
  if (writer_ != nullptr) {
    writer_->WriteInBackground();
    ReportPacking();
  }
  RETURN_IF_ERROR(backend_->Synchronize());
  return std::move(loaded_);
}

absl::StatusOr<std::unique_ptr<TransformerWeights>> TransformerLoader::Load(PackedFile packed) {
  loaded_->packed = std::move(packed);
  loaded_->is_unread = true;
  packed_ = &loaded_->packed;
  return Load();
}

absl::StatusOr<std::unique_ptr<TransformerWeights>> TransformerLoader::Load(
    std::unique_ptr<PackedFileWriter> writer, Totals totals) {
  loaded_->packed_writer = std::move(writer);
  writer_ = loaded_->packed_writer.get();
  totals_ = totals;
  return Load();
}

absl::StatusOr<TransformerLoader::Totals> TransformerLoader::Check() {
  only_checks_ = true;
  RETURN_IF_ERROR(Fill());
  totals_.num_parameters = loaded_->num_parameters;
  return totals_;
}

int TransformerLoader::MaxEntries(const ModelConfig& config) {
  return (9 + 2 * config.num_experts) * config.num_layers + 4;
}

absl::Status TransformerLoader::Fill() {
  const ModelConfig& config = files_.config;
  if (config.num_experts > 0 && !backend_->computes_experts()) {
    return absl::UnimplementedError(
        absl::StrCat(files_.path, ": found a model with experts, allowed on ",
                     View(backend_->name()), ": models without experts"));
  }
  if (options_.group != nullptr && !options_.group->gathers_pieces() &&
      config.query_key_norm == QueryKeyNorm::kAllHeads) {
    return absl::UnimplementedError(absl::StrCat(
        files_.path, ": found norms over all heads, allowed where ranks have devices: ",
        "norms of each head, or none"));
  }
  ConstMatrixView embedding;
  if (!config.is_draft_head() || config.has_own_embedding) {
    ASSIGN_OR_RETURN(embedding, LoadEmbedding());
    if (!only_checks_) {
      loaded_->host_embedding = embedding;
      ASSIGN_OR_RETURN(loaded_->embedding,
                       backend_->Import(embedding, &loaded_->embedding_storage));
    }
  }
  if (config.is_draft_head()) RETURN_IF_ERROR(LoadStateParts());
  loaded_->layers.resize(config.num_layers);
  for (int i = 0; i < config.num_layers; ++i) RETURN_IF_ERROR(LoadLayer(i, &loaded_->layers[i]));
  ASSIGN_OR_RETURN(loaded_->final_norm, Vector("model.norm.weight", config.hidden_size));
  RETURN_IF_ERROR(config.is_draft_head() ? LoadDraftHead() : LoadHead(embedding));
  for (const LayerRotation kind : config.rotations) {
    TransformerWeights::Rotation& rotation = loaded_->rotations[static_cast<int>(kind)];
    if (!rotation.is_used()) RETURN_IF_ERROR(LoadRotation(kind, &rotation));
  }
  return CheckAllHavePlaces(*files_.weights, config);
}

absl::StatusOr<ConstMatrixView> TransformerLoader::Matrix(const std::string& name, int64_t rows,
                                                          int64_t cols) {
  loaded_->num_parameters += rows * cols;
  ASSIGN_OR_RETURN(ConstMatrixView matrix, files_.weights->Describe(name, {rows, cols}));
  if (packed_ == nullptr && files_.weights->IsMade(name)) {
    RETURN_IF_ERROR(CheckMemoryFor(name, matrix));
  }
  if (!has_no_data()) {
    ASSIGN_OR_RETURN(matrix, files_.weights->Get(name, {rows, cols}));
  }
  if (options_.quantized.has_value() && options_.which == Transformer::Quantize::kFloats &&
      IsBlocks(matrix.dtype)) {
    return FieldError(
        "quantize", absl::StrCat("found ", NameOf(*options_.quantized), ", allowed: none, because ",
                                 files_.weights->Where(name), " is quantised to ",
                                 NameOf(matrix.dtype), " already"));
  }
  return matrix;
}

absl::Status TransformerLoader::CheckMemoryFor(const std::string& name,
                                               const ConstMatrixView& matrix) const {
  const int64_t bytes = matrix.rows * static_cast<int64_t>(RowBytes(matrix.dtype, matrix.cols));
  const std::optional<int64_t> available = AvailableMemoryBytes();
  if (!available.has_value() || 2 * bytes <= *available) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("memory: need ", 2 * bytes, " bytes to build and pack ",
                   files_.weights->Where(name), ", but only ", *available, " are available"));
}

std::optional<DType> TransformerLoader::FormatOf(const ConstMatrixView& matrix,
                                                 DType wanted) const {
  if (!options_.quantized.has_value()) return std::nullopt;
  const bool is_smaller = RowBytes(wanted, kLongRow) < RowBytes(matrix.dtype, kLongRow);
  if (IsBlocks(matrix.dtype) && !is_smaller) return std::nullopt;
  return matrix.cols % kBlockGroup == 0 ? std::optional(wanted) : std::nullopt;
}

absl::StatusOr<ConstMatrixView> TransformerLoader::LoadEmbedding() {
  const std::string name = kEmbeddingTensor;
  ASSIGN_OR_RETURN(const ConstMatrixView matrix,
                   Matrix(name, files_.config.vocab_size, files_.config.hidden_size));
  const std::optional<DType> format = FormatOf(matrix, kHeadFormat);
  if (!format.has_value()) return only_checks_ ? matrix : EmbeddingInPlace(name, matrix);
  if (only_checks_) {
    totals_.packed_bytes +=
        PackedFileWriter::PaddedSize(matrix.rows * RowBytes(*format, matrix.cols));
    return matrix;
  }
  ConstMatrixView quantized(nullptr, *format, matrix.rows, matrix.cols, matrix.cols);
  const std::string entry = absl::StrCat(name, " rows ", NameOf(*format));
  if (packed_ != nullptr) {
    ASSIGN_OR_RETURN(const absl::Span<const std::byte> bytes, packed_->Find(entry));
    if (bytes.size() < matrix.rows * RowBytes(*format, matrix.cols)) {
      return absl::FailedPreconditionError(absl::StrCat(entry, ": found too few bytes"));
    }
    quantized.data = bytes.data();
    return quantized;
  }
  ThreadPool pool(NumUsableCores());
  std::vector<std::byte> bytes = QuantizeMatrix(matrix, *format, &pool);
  files_.weights->Forget(name);
  if (writer_ != nullptr) {
    ASSIGN_OR_RETURN(const absl::Span<std::byte> memory, writer_->Add(entry, bytes.size()));
    absl::c_copy(bytes, memory.begin());
    quantized.data = memory.data();
    ReportPacking();
    return quantized;
  }
  loaded_->quantized_embedding = std::move(bytes);
  quantized.data = loaded_->quantized_embedding.data();
  return quantized;
}

absl::StatusOr<ConstMatrixView> TransformerLoader::EmbeddingInPlace(
    const std::string& name, const ConstMatrixView& described) {
  ASSIGN_OR_RETURN(ConstMatrixView matrix,
                   files_.weights->Get(name, {described.rows, described.cols}));
  if (!files_.weights->IsMade(name)) return matrix;
  const auto* const bytes = static_cast<const std::byte*>(matrix.data);
  loaded_->quantized_embedding.assign(bytes,
                                      bytes + matrix.rows * RowBytes(matrix.dtype, matrix.cols));
  matrix.data = loaded_->quantized_embedding.data();
  files_.weights->Forget(name);
  return matrix;
}

absl::StatusOr<std::vector<float>> TransformerLoader::HostVector(const std::string& name,
                                                                 int64_t size) {
  loaded_->num_parameters += size;
  ASSIGN_OR_RETURN(const ConstMatrixView tensor, files_.weights->Get(name, {size}));
  std::vector<float> values(size);
  WidenRow(tensor.data, tensor.dtype, tensor.cols, values.data());
  return values;
}

absl::StatusOr<Buffer> TransformerLoader::UploadFloats(const std::vector<float>& values) {
  ASSIGN_OR_RETURN(Buffer buffer, backend_->Allocate(values.size() * sizeof(float)));
  backend_->Upload(
      {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(float)},
      buffer.data());
  return buffer;
}

absl::StatusOr<Buffer> TransformerLoader::Vector(const std::string& name, int64_t size) {
  ASSIGN_OR_RETURN(const std::vector<float> values, HostVector(name, size));
  return UploadFloats(values);
}

void TransformerLoader::ReportPacking() const {
  if (options_.on_packing) options_.on_packing(loaded_->num_parameters, totals_.num_parameters);
}

bool TransformerLoader::IsAnyMade(const std::vector<std::string>& tensors) const {
  return std::any_of(tensors.begin(), tensors.end(),
                     [&](const std::string& tensor) { return files_.weights->IsMade(tensor); });
}

absl::Status TransformerLoader::Pack(absl::Span<const WeightPart> parts, PartOrder order,
                                     std::optional<DType> wanted, std::vector<std::string> tensors,
                                     PackedWeight* weight) {
  if (parts.empty()) return absl::OkStatus();
  std::optional<DType> format;
  if (wanted.has_value()) format = FormatOf(parts[0].matrix, *wanted);
  if (only_checks_) {
    totals_.packed_bytes +=
        PackedFileWriter::PaddedSize(backend_->PackedBytes(parts, order, format));
    return absl::OkStatus();
  }
  const std::string entry = absl::StrCat(absl::StrJoin(tensors, "+"), " ",
                                         NameOf(format.value_or(parts[0].matrix.dtype)));
  if (packed_ != nullptr) {
    ASSIGN_OR_RETURN(const absl::Span<const std::byte> bytes, packed_->Find(entry));
    ASSIGN_OR_RETURN(*weight, backend_->UsePacked(parts, order, format, bytes));
    return absl::OkStatus();
  }
  if (writer_ != nullptr) {
    ASSIGN_OR_RETURN(const absl::Span<std::byte> memory,
                     writer_->Add(entry, backend_->PackedBytes(parts, order, format)));
    ASSIGN_OR_RETURN(*weight, backend_->PackInto(parts, order, format, memory));
    for (const std::string& tensor : tensors) files_.weights->Forget(tensor);
    ReportPacking();
    return absl::OkStatus();
  }
  // Matrices that were built in memory are packed and freed at once.
  if (packs_now_ || IsAnyMade(tensors)) {
    ASSIGN_OR_RETURN(*weight, backend_->Pack(parts, order, format));
    loaded_->bytes_packed_at_load += weight->data.size_bytes();
    for (const std::string& tensor : tensors) files_.weights->Forget(tensor);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(*weight, backend_->PackLater(parts, order, format));
  loaded_->unpacked.push_back({weight, std::move(tensors)});
  loaded_->ForgetPacked();
  return absl::OkStatus();
}

absl::StatusOr<TransformerLoader::FoundParts> TransformerLoader::FindProjections(
    const std::string& prefix, absl::Span<const char* const> names,
    absl::Span<const Outputs> outputs, int inputs, bool has_bias) {
  FoundParts found;
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string name = absl::StrCat(prefix, names[i]);
    const std::string tensor = absl::StrCat(name, ".weight");
    const auto [count, own] = outputs[i];
    ASSIGN_OR_RETURN(const ConstMatrixView matrix, Matrix(tensor, count, inputs));
    std::vector<float> bias;
    if (has_bias) {
      ASSIGN_OR_RETURN(bias, HostVector(absl::StrCat(name, ".bias"), count));
    }
    if (own.size() == 0) continue;
    found.tensors.push_back(tensor);
    found.parts.push_back({.matrix = RowsOf(matrix, own.begin, own.end)});
    if (!has_bias) continue;
    found.parts.back().bias = bias.data() + own.begin;  // stays valid after the move
    found.biases.push_back(std::move(bias));
  }
  return found;
}

absl::Status TransformerLoader::Projections(const std::string& prefix,
                                            absl::Span<const char* const> names,
                                            absl::Span<const Outputs> outputs, int inputs,
                                            bool has_bias, PackedWeight* weight, PartOrder order) {
  ASSIGN_OR_RETURN(FoundParts found, FindProjections(prefix, names, outputs, inputs, has_bias));
  for (size_t i = 1; i < found.parts.size(); ++i) {
    if (found.HasOneDType(i, 0)) continue;
    if (IsAnyMade(found.tensors)) return PackWidened(&found, order, options_.quantized, weight);
    return absl::InvalidArgumentError(
        absl::StrCat(files_.path, ": ", found.tensors[i], " is ",
                     NameOf(found.parts[i].matrix.dtype), " and ", found.tensors[0], " is ",
                     NameOf(found.parts[0].matrix.dtype), "; they must have one dtype"));
  }
  return Pack(found.parts, order, options_.quantized, std::move(found.tensors), weight);
}

absl::Status TransformerLoader::PackWidened(FoundParts* found, PartOrder order,
                                            std::optional<DType> wanted, PackedWeight* weight) {
  std::vector<std::vector<float>> widened;
  for (WeightPart& part : found->parts) {
    const ConstMatrixView matrix = part.matrix;
    part.matrix = ConstMatrixView(nullptr, DType::kF32, matrix.rows, matrix.cols, matrix.cols);
    if (has_no_data()) continue;
    std::vector<float>& floats = widened.emplace_back(int64_t{matrix.rows} * matrix.cols);
    const auto* row = static_cast<const std::byte*>(matrix.data);
    for (int r = 0; r < matrix.rows; ++r, row += RowBytes(matrix.dtype, matrix.stride)) {
      WidenRow(row, matrix.dtype, matrix.cols, floats.data() + int64_t{r} * matrix.cols);
    }
    part.matrix.data = floats.data();
  }
  return Pack(found->parts, order, wanted, std::move(found->tensors), weight);
}

absl::Status TransformerLoader::AttentionProjections(const std::string& prefix,
                                                     absl::Span<const Outputs> outputs, int inputs,
                                                     bool has_bias,
                                                     std::vector<PackedWeight>* weights) {
  ASSIGN_OR_RETURN(const FoundParts found, FindProjections(prefix, {"q_proj", "k_proj", "v_proj"},
                                                           outputs, inputs, has_bias));
  const size_t size = found.parts.size();
  weights->reserve(size);  // so that their addresses do not change
  for (size_t first = 0, end = 0; first < size; first = end) {
    while (end < size && found.HasOneDType(first, end)) ++end;
    RETURN_IF_ERROR(Pack(absl::MakeConstSpan(found.parts).subspan(first, end - first),
                         PartOrder::kConcatenated, options_.quantized,
                         {found.tensors.begin() + first, found.tensors.begin() + end},
                         &weights->emplace_back()));
  }
  return absl::OkStatus();
}

absl::Status TransformerLoader::LoadRotation(LayerRotation kind,
                                             TransformerWeights::Rotation* rotation) {
  const ModelConfig& c = files_.config;
  const RopeConfig& rope = kind == LayerRotation::kLocal ? c.local_rope : c.rope;
  const int half = c.head_dim / 2;
  std::vector<float> frequencies;
  std::vector<float> magnitudes(half, 1.0f);
  for (int variant = 0; variant < c.num_cache_variants(); ++variant) {
    std::vector<float> table;
    if (kind != LayerRotation::kNone) {
      const bool is_long = variant > 0 && rope.type == RopeConfig::Type::kLongRope;
      table = rope.InverseFrequencies(c.rotary_dim, is_long);
      std::fill_n(magnitudes.begin(), table.size(), static_cast<float>(rope.magnitude));
    }
    table.resize(half, 0.0f);
    frequencies.insert(frequencies.end(), table.begin(), table.end());
  }
  ASSIGN_OR_RETURN(rotation->inverse_frequencies, UploadFloats(frequencies));
  ASSIGN_OR_RETURN(rotation->magnitudes, UploadFloats(magnitudes));
  return absl::OkStatus();
}

absl::Status TransformerLoader::LoadLayer(int index, TransformerWeights::Layer* to) {
  const ModelConfig& c = files_.config;
  const std::string prefix = absl::StrCat("model.layers.", index, ".");
  const std::string attention = absl::StrCat(prefix, "self_attn.");
  const std::string mlp = absl::StrCat(prefix, "mlp.");
  const int query_size = c.num_heads * c.head_dim;
  const int kv_size = c.num_kv_heads * c.head_dim;
  TransformerWeights::Layer& layer = *to;
  const auto load_norm = [&](const char* part, Buffer* norm) -> absl::Status {
    ASSIGN_OR_RETURN(*norm, Vector(absl::StrCat(prefix, part, ".weight"), c.hidden_size));
    return absl::OkStatus();
  };
  if (c.normalizes_inputs) {
    RETURN_IF_ERROR(load_norm(kAttentionNorm, &layer.attention_norm));
    if (!c.is_parallel) RETURN_IF_ERROR(load_norm(kMlpNorm, &layer.mlp_norm));
  }
  if (c.normalizes_outputs) {
    RETURN_IF_ERROR(load_norm(kAttentionOutputNorm, &layer.attention_output_norm));
    RETURN_IF_ERROR(load_norm(kMlpOutputNorm, &layer.mlp_output_norm));
  }
  const auto of_heads = [&](RankShare heads) {
    return RankShare{heads.begin * c.head_dim, heads.end * c.head_dim};
  };
  const Outputs keys{kv_size, of_heads(own_.kv_heads)};
  RETURN_IF_ERROR(AttentionProjections(attention,
                                       {Outputs{query_size, of_heads(own_.heads)}, keys, keys},
                                       c.attention_inputs(), c.qkv_bias, &layer.qkv));
  if (c.query_key_norm != QueryKeyNorm::kNone) {
    const bool is_each = c.query_key_norm == QueryKeyNorm::kEachHead;
    ASSIGN_OR_RETURN(layer.query_norm, Vector(absl::StrCat(attention, "q_norm.weight"),
                                              is_each ? c.head_dim : query_size));
    ASSIGN_OR_RETURN(layer.key_norm, Vector(absl::StrCat(attention, "k_norm.weight"),
                                            is_each ? c.head_dim : kv_size));
  }
  const Outputs hidden{c.hidden_size, own_.hidden};
  RETURN_IF_ERROR(Projections(attention, {"o_proj"}, {hidden}, query_size, c.output_bias,
                              &layer.attention_out));
  if (c.has_experts(index)) return LoadExperts(mlp, &layer);
  return LoadFeedForward(mlp, {c.intermediate_size, own_.mlp}, hidden, c.mlp_bias, &layer.gate_up,
                         &layer.down);
}

absl::Status TransformerLoader::LoadFeedForward(const std::string& prefix, Outputs middle,
                                                Outputs hidden, bool has_bias,
                                                PackedWeight* gate_up, PackedWeight* down) {
  RETURN_IF_ERROR(Projections(prefix, {"gate_proj", "up_proj"}, {middle, middle}, hidden.count,
                              has_bias, gate_up, PartOrder::kGateAndUp));
  return Projections(prefix, {"down_proj"}, {hidden}, middle.count, has_bias, down);
}

absl::Status TransformerLoader::LoadExperts(const std::string& mlp,
                                            TransformerWeights::Layer* layer) {
  const ModelConfig& c = files_.config;
  const std::string router = absl::StrCat(mlp, "gate.weight");
  packs_now_ = true;
  absl::Cleanup later = [&] { packs_now_ = false; };
  ASSIGN_OR_RETURN(const ConstMatrixView matrix, Matrix(router, c.num_experts, c.hidden_size));
  FoundParts found{.tensors = {router}, .parts = {{.matrix = matrix}}, .biases = {}};
  RETURN_IF_ERROR(
      PackWidened(&found, PartOrder::kConcatenated, /*wanted=*/std::nullopt, &layer->router));
  const RankShare own = own_.experts;
  layer->experts.first = own.begin;
  layer->experts.gate_up.resize(own.size());
  layer->experts.down.resize(own.size());
  for (int e = 0; e < c.num_experts; ++e) {
    const bool is_own = own.begin <= e && e < own.end;
    const auto outputs = [&](int count) { return Outputs{count, {0, is_own ? count : 0}}; };
    PackedWeight others[2];
    RETURN_IF_ERROR(LoadFeedForward(
        absl::StrCat(mlp, "experts.", e, "."), outputs(c.expert_size), outputs(c.hidden_size),
        /*has_bias=*/false, is_own ? &layer->experts.gate_up[e - own.begin] : &others[0],
        is_own ? &layer->experts.down[e - own.begin] : &others[1]));
  }
  return absl::OkStatus();
}

absl::Status TransformerLoader::LoadHead(ConstMatrixView embedding) {
  WeightPart part{.matrix = embedding, .bias = nullptr};
  if (!files_.config.tied_embeddings) {
    ASSIGN_OR_RETURN(part.matrix,
                     Matrix(kHeadTensor, files_.config.vocab_size, files_.config.hidden_size));
  }
  if (options_.head_tokens > part.matrix.rows) {
    return FieldError("draft_head_tokens",
                      absl::StrCat("found ", options_.head_tokens, ", allowed: up to ",
                                   part.matrix.rows, ", the vocabulary of ", files_.path));
  }
  const std::optional<DType> format = FormatOf(part.matrix, kHeadFormat);
  loaded_->head_row_bytes =
      static_cast<int64_t>(RowBytes(format.value_or(part.matrix.dtype), part.matrix.cols));
  if (options_.SetsHead(files_.config)) {
    loaded_->head_format = format;
    return absl::OkStatus();
  }
  if (options_.head_tokens > 0) part.matrix.rows = options_.head_tokens;
  loaded_->num_head_tokens = part.matrix.rows;
  const RankShare rows =
      OwnPartsOf(files_.config, loaded_->num_head_tokens, options_.group).head_rows;
  part.matrix = RowsOf(part.matrix, rows.begin, rows.end);
  if (part.matrix.rows == 0) return absl::OkStatus();
  return Pack({part}, PartOrder::kConcatenated, kHeadFormat,
              {files_.config.tied_embeddings ? kEmbeddingTensor : kHeadTensor}, &loaded_->head);
}

}  // namespace tandem
