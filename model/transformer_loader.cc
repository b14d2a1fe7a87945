// Fills a Transformer from the named tensors of a checkpoint.
#include <algorithm>
#include <optional>
#include <set>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/process_limits.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "base/thread_pool.h"
#include "checkpoint/arranged_weights.h"
#include "checkpoint/model_families.h"
#include "kernels/blocks.h"
#include "kernels/quantize.h"
#include "kernels/widen_row.h"
#include "model/transformer.h"
#include "tandem/field_error.h"

namespace tandem {
namespace {

constexpr int64_t kLongRow = 256;  // whole blocks of every format
// The format of a quantised head and embedding. No format of blocks is larger.
constexpr DType kHeadFormat = DType::kQ8_0;

// Whether the head is left out.
bool SetsHead(const Transformer::LoadOptions& options, const ModelConfig& config) {
  return options.sets_head_from > 0 && config.vocab_size >= options.sets_head_from;
}

// Those rows of a matrix, which may have no data.
ConstMatrixView RowsOf(ConstMatrixView matrix, RankShare rows) {
  if (matrix.data != nullptr) {
    matrix.data = static_cast<const std::byte*>(matrix.data) +
                  rows.begin * RowBytes(matrix.dtype, matrix.stride);
  }
  matrix.rows = rows.size();
  return matrix;
}

// Tensors of older checkpoints that hold nothing but what the config says.
bool IsDerivable(absl::string_view name) {
  return absl::EndsWith(name, "rotary_emb.inv_freq") ||
         absl::EndsWith(name, "self_attn.masked_bias") || absl::EndsWith(name, "self_attn.bias");
}

}  // namespace

class TransformerLoader {
 public:
  TransformerLoader(const std::string& path, const Transformer::LoadOptions& options,
                    Transformer* model)
      : model_(*model),
        quantized_(options.quantized),
        which_(options.which),
        head_tokens_(options.head_tokens),
        sets_head_(SetsHead(options, model->config_)),
        on_packing_(options.on_packing),
        path_(path) {}

  // From the weights' files, or from `packed`.
  absl::Status Load(PackedFile* packed) {
    if (packed != nullptr) {
      model_.packed_ = std::move(*packed);
      model_.is_unread_ = true;
      packed_ = &model_.packed_;
    }
    return Fill();
  }
  // Refuses what Load would refuse, and makes, reads and packs no matrix.
  absl::Status Check() {
    only_checks_ = true;
    return Fill();
  }
  // Packs every weight into a file, `num_parameters` of them. The model is left without.
  absl::Status Write(PackedFileWriter* writer, int64_t num_parameters) {
    writer_ = writer;
    num_to_write_ = num_parameters;
    RETURN_IF_ERROR(Fill());
    RETURN_IF_ERROR(writer->Finish());
    if (on_packing_) on_packing_(num_to_write_, num_to_write_);
    return absl::OkStatus();
  }
  static int MostEntries(const ModelConfig& config) {
    return (9 + 2 * config.num_experts) * config.num_layers + 2;
  }

 private:
  absl::Status Fill() {
    const ModelConfig& config = model_.config_;
    if (config.num_experts > 0 && !model_.backend_->computes_experts()) {
      return absl::UnimplementedError(
          absl::StrCat(path_, ": found a model with experts, allowed on ",
                       View(model_.backend_->name()), ": models without"));
    }
    ASSIGN_OR_RETURN(const ConstMatrixView embedding, LoadEmbedding());
    if (!only_checks_) {
      ASSIGN_OR_RETURN(model_.embedding_,
                       model_.backend_->Import(embedding, &model_.embedding_storage_));
    }
    model_.layers_.resize(config.num_layers);
    for (int i = 0; i < config.num_layers; ++i) RETURN_IF_ERROR(LoadLayer(i, &model_.layers_[i]));
    ASSIGN_OR_RETURN(model_.final_norm_, Vector("model.norm.weight", config.hidden_size));
    RETURN_IF_ERROR(LoadHead(embedding));
    for (const LayerRotation kind : config.rotations) {
      Transformer::Rotation& rotation = model_.rotations_[static_cast<int>(kind)];
      if (!rotation.is_used()) RETURN_IF_ERROR(LoadRotation(kind, &rotation));
    }
    return CheckAllUsed();
  }

  // Whether matrices are only described.
  bool has_no_data() const { return packed_ != nullptr || only_checks_; }

  // Without data where packed weights replace it, or only its description is checked.
  absl::StatusOr<ConstMatrixView> Matrix(const std::string& name, int64_t rows, int64_t cols) {
    used_.insert(name);
    model_.num_parameters_ += rows * cols;
    ASSIGN_OR_RETURN(ConstMatrixView matrix, model_.weights_->Describe(name, {rows, cols}));
    if (packed_ == nullptr && model_.weights_->IsMade(name)) {
      RETURN_IF_ERROR(CheckMemoryFor(name, matrix));
    }
    if (!has_no_data()) {
      ASSIGN_OR_RETURN(matrix, model_.weights_->Get(name, {rows, cols}));
    }
    if (quantized_.has_value() && which_ == Transformer::Quantize::kFloats &&
        IsBlocks(matrix.dtype)) {
      return FieldError("quantize",
                        absl::StrCat("found ", NameOf(*quantized_), ", allowed: none, because ",
                                     model_.weights_->Where(name), " is quantised to ",
                                     NameOf(matrix.dtype), " already"));
    }
    return matrix;
  }

  // Whether a matrix that is made can be packed, too: what does not fit is refused, not killed.
  absl::Status CheckMemoryFor(const std::string& name, const ConstMatrixView& matrix) const {
    const int64_t bytes = matrix.rows * static_cast<int64_t>(RowBytes(matrix.dtype, matrix.cols));
    const std::optional<int64_t> available = AvailableMemoryBytes();
    if (!available.has_value() || 2 * bytes <= *available) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        absl::StrCat("memory: ", 2 * bytes, " bytes are wanted to make and pack ",
                     model_.weights_->Where(name), ", and ", *available, " are available"));
  }

  // To what a matrix is quantised when `wanted` is asked for; nothing if it stays as it is.
  std::optional<DType> FormatOf(const ConstMatrixView& matrix, DType wanted) const {
    if (!quantized_.has_value()) return std::nullopt;
    const bool is_smaller = RowBytes(wanted, kLongRow) < RowBytes(matrix.dtype, kLongRow);
    if (IsBlocks(matrix.dtype) && !is_smaller) return std::nullopt;
    return matrix.cols % kBlockGroup == 0 ? std::optional(wanted) : std::nullopt;
  }

  absl::StatusOr<ConstMatrixView> LoadEmbedding() {
    const std::string name = "model.embed_tokens.weight";
    ASSIGN_OR_RETURN(const ConstMatrixView matrix,
                     Matrix(name, model_.config_.vocab_size, model_.config_.hidden_size));
    if (only_checks_) return matrix;
    const std::optional<DType> format = FormatOf(matrix, kHeadFormat);
    if (!format.has_value()) return EmbeddingInPlace(name, matrix);
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
    model_.quantized_embedding_ = QuantizeMatrix(matrix, *format, &pool);
    model_.weights_->Forget(name);
    if (writer_ != nullptr) RETURN_IF_ERROR(Keep(entry, model_.quantized_embedding_));
    quantized.data = model_.quantized_embedding_.data();
    return quantized;
  }

  // The embedding as the files have it.
  absl::StatusOr<ConstMatrixView> EmbeddingInPlace(const std::string& name,
                                                   const ConstMatrixView& described) {
    ASSIGN_OR_RETURN(ConstMatrixView matrix,
                     model_.weights_->Get(name, {described.rows, described.cols}));
    if (!model_.weights_->IsMade(name)) return matrix;
    const auto* const bytes = static_cast<const std::byte*>(matrix.data);
    model_.quantized_embedding_.assign(bytes,
                                       bytes + matrix.rows * RowBytes(matrix.dtype, matrix.cols));
    matrix.data = model_.quantized_embedding_.data();
    model_.weights_->Forget(name);
    return matrix;
  }

  absl::StatusOr<std::vector<float>> HostVector(const std::string& name, int64_t size) {
    used_.insert(name);
    model_.num_parameters_ += size;
    ASSIGN_OR_RETURN(const ConstMatrixView tensor, model_.weights_->Get(name, {size}));
    std::vector<float> values(size);
    WidenRow(tensor.data, tensor.dtype, tensor.cols, values.data());
    return values;
  }

  absl::StatusOr<Buffer> UploadFloats(const std::vector<float>& values) {
    ASSIGN_OR_RETURN(Buffer buffer, model_.backend_->Allocate(values.size() * sizeof(float)));
    model_.backend_->Upload(
        {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(float)},
        buffer.data());
    return buffer;
  }

  absl::StatusOr<Buffer> Vector(const std::string& name, int64_t size) {
    ASSIGN_OR_RETURN(const std::vector<float> values, HostVector(name, size));
    return UploadFloats(values);
  }

  // Adds packed weights to the file, and tells how many parameters have come so far.
  absl::Status Keep(const std::string& entry, absl::Span<const std::byte> bytes) {
    RETURN_IF_ERROR(writer_->Add(entry, bytes));
    if (on_packing_) on_packing_(model_.num_parameters_, num_to_write_);
    return absl::OkStatus();
  }

  bool IsAnyMade(const std::vector<std::string>& tensors) const {
    return std::any_of(tensors.begin(), tensors.end(),
                       [&](const std::string& tensor) { return model_.weights_->IsMade(tensor); });
  }

  // Packs the parts, which are `tensors`, into `*weight`, which stays where it is.
  absl::Status Pack(absl::Span<const WeightPart> parts, PartOrder order,
                    std::optional<DType> wanted, std::vector<std::string> tensors,
                    PackedWeight* weight) {
    if (only_checks_ || parts.empty()) return absl::OkStatus();
    std::optional<DType> format;
    if (wanted.has_value()) format = FormatOf(parts[0].matrix, *wanted);
    const std::string entry = absl::StrCat(absl::StrJoin(tensors, "+"), " ",
                                           NameOf(format.value_or(parts[0].matrix.dtype)));
    if (packed_ != nullptr) {
      ASSIGN_OR_RETURN(const absl::Span<const std::byte> bytes, packed_->Find(entry));
      ASSIGN_OR_RETURN(*weight, model_.backend_->UsePacked(parts, order, format, bytes));
      return absl::OkStatus();
    }
    if (writer_ != nullptr) {
      ASSIGN_OR_RETURN(const PackedWeight packed, model_.backend_->Pack(parts, order, format));
      for (const std::string& tensor : tensors) model_.weights_->Forget(tensor);
      return Keep(entry,
                  {static_cast<const std::byte*>(packed.data.data()), packed.data.size_bytes()});
    }
    // Matrices that were made in memory leave it at once.
    if (packs_now_ || IsAnyMade(tensors)) {
      ASSIGN_OR_RETURN(*weight, model_.backend_->Pack(parts, order, format));
      model_.bytes_packed_at_load_ += weight->data.size_bytes();
      for (const std::string& tensor : tensors) model_.weights_->Forget(tensor);
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(*weight, model_.backend_->PackLater(parts, order, format));
    model_.unpacked_.push_back({weight, std::move(tensors)});
    model_.ForgetPacked();
    return absl::OkStatus();
  }

  // Tensors that are multiplied with the same rows.
  struct FoundParts {
    std::vector<std::string> tensors;
    std::vector<WeightPart> parts;
    std::vector<std::vector<float>> biases;

    bool HasOneDType(size_t i, size_t j) const {
      return parts[i].matrix.dtype == parts[j].matrix.dtype;
    }
  };

  // How many outputs a projection has, and which of them this rank computes.
  struct Outputs {
    int count = 0;
    RankShare own;
  };
  static Outputs Whole(int count) { return {count, {0, count}}; }

  // This rank's outputs of the projections `names` ("q_proj", ...) under `prefix`; nothing of one
  // without any.
  absl::StatusOr<FoundParts> FindProjections(const std::string& prefix,
                                             absl::Span<const char* const> names,
                                             absl::Span<const Outputs> outputs, int inputs,
                                             bool has_bias) {
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
      found.parts.push_back({.matrix = RowsOf(matrix, own)});
      if (!has_bias) continue;
      found.parts.back().bias = bias.data() + own.begin;  // which stays there
      found.biases.push_back(std::move(bias));
    }
    return found;
  }

  // Packs projections of one dtype as one product.
  absl::Status Projections(const std::string& prefix, absl::Span<const char* const> names,
                           absl::Span<const Outputs> outputs, int inputs, bool has_bias,
                           PackedWeight* weight, PartOrder order = PartOrder::kConcatenated) {
    ASSIGN_OR_RETURN(FoundParts found, FindProjections(prefix, names, outputs, inputs, has_bias));
    for (size_t i = 1; i < found.parts.size(); ++i) {
      if (found.HasOneDType(i, 0)) continue;
      if (IsAnyMade(found.tensors)) return PackWidened(&found, order, quantized_, weight);
      return absl::InvalidArgumentError(
          absl::StrCat(path_, ": ", found.tensors[i], " is ", NameOf(found.parts[i].matrix.dtype),
                       " and ", found.tensors[0], " is ", NameOf(found.parts[0].matrix.dtype),
                       "; they must have one dtype"));
    }
    return Pack(found.parts, order, quantized_, std::move(found.tensors), weight);
  }

  // Packs parts as f32, which holds every dtype, such as those of a quantised checkpoint of which
  // one was left out of quantising. REQUIRES: they are packed now, as what is widened does not
  // stay.
  absl::Status PackWidened(FoundParts* found, PartOrder order, std::optional<DType> wanted,
                           PackedWeight* weight) {
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

  // Packs queries, keys and values: as one product, if they have one dtype.
  absl::Status AttentionProjections(const std::string& prefix, absl::Span<const Outputs> outputs,
                                    int inputs, bool has_bias, std::vector<PackedWeight>* weights) {
    ASSIGN_OR_RETURN(const FoundParts found, FindProjections(prefix, {"q_proj", "k_proj", "v_proj"},
                                                             outputs, inputs, has_bias));
    const size_t size = found.parts.size();
    weights->reserve(size);  // they stay where they are
    for (size_t first = 0, end = 0; first < size; first = end) {
      while (end < size && found.HasOneDType(first, end)) ++end;
      RETURN_IF_ERROR(Pack(absl::MakeConstSpan(found.parts).subspan(first, end - first),
                           PartOrder::kConcatenated, quantized_,
                           {found.tensors.begin() + first, found.tensors.begin() + end},
                           &weights->emplace_back()));
    }
    return absl::OkStatus();
  }

  // Elements of a head that are not rotated have frequencies of 0 and magnitudes of 1.
  absl::Status LoadRotation(LayerRotation kind, Transformer::Rotation* rotation) {
    const ModelConfig& c = model_.config_;
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

  absl::Status LoadLayer(int index, Transformer::Layer* to) {
    const ModelConfig& c = model_.config_;
    const std::string prefix = absl::StrCat("model.layers.", index, ".");
    const std::string attention = absl::StrCat(prefix, "self_attn.");
    const std::string mlp = absl::StrCat(prefix, "mlp.");
    const int query_size = c.num_heads * c.head_dim;
    const int kv_size = c.num_kv_heads * c.head_dim;
    Transformer::Layer& layer = *to;
    const auto load_norm = [&](const char* part, Buffer* norm) -> absl::Status {
      ASSIGN_OR_RETURN(*norm, Vector(absl::StrCat(prefix, part, ".weight"), c.hidden_size));
      return absl::OkStatus();
    };
    if (c.norms_inputs) {
      RETURN_IF_ERROR(load_norm(kAttentionNorm, &layer.attention_norm));
      if (!c.is_parallel) RETURN_IF_ERROR(load_norm(kMlpNorm, &layer.mlp_norm));
    }
    if (c.norms_outputs) {
      RETURN_IF_ERROR(load_norm(kAttentionOutputNorm, &layer.attention_output_norm));
      RETURN_IF_ERROR(load_norm(kMlpOutputNorm, &layer.mlp_output_norm));
    }
    const auto of_heads = [&](RankShare heads) {
      return RankShare{heads.begin * c.head_dim, heads.end * c.head_dim};
    };
    const Transformer::Parts& own = model_.parts_;
    const Outputs keys{kv_size, of_heads(own.kv_heads)};
    RETURN_IF_ERROR(AttentionProjections(attention,
                                         {Outputs{query_size, of_heads(own.heads)}, keys, keys},
                                         c.hidden_size, c.qkv_bias, &layer.qkv));
    if (c.query_key_norm != QueryKeyNorm::kNone) {
      const bool is_each = c.query_key_norm == QueryKeyNorm::kEachHead;
      ASSIGN_OR_RETURN(layer.query_norm, Vector(absl::StrCat(attention, "q_norm.weight"),
                                                is_each ? c.head_dim : query_size));
      ASSIGN_OR_RETURN(layer.key_norm, Vector(absl::StrCat(attention, "k_norm.weight"),
                                              is_each ? c.head_dim : kv_size));
    }
    const Outputs hidden{c.hidden_size, own.hidden};
    RETURN_IF_ERROR(Projections(attention, {"o_proj"}, {hidden}, query_size, c.output_bias,
                                &layer.attention_out));
    if (c.has_experts(index)) return LoadExperts(mlp, &layer);
    return LoadFeedForward(mlp, {c.intermediate_size, own.mlp}, hidden, c.mlp_bias, &layer.gate_up,
                           &layer.down);
  }

  absl::Status LoadFeedForward(const std::string& prefix, Outputs middle, Outputs hidden,
                               bool has_bias, PackedWeight* gate_up, PackedWeight* down) {
    RETURN_IF_ERROR(Projections(prefix, {"gate_proj", "up_proj"}, {middle, middle}, hidden.count,
                                has_bias, gate_up, PartOrder::kGateAndUp));
    return Projections(prefix, {"down_proj"}, {hidden}, middle.count, has_bias, down);
  }

  // The router is f32 whatever it is stored as, because what it says decides and it is small.
  // Experts are packed at once, because no pass reads all of them.
  absl::Status LoadExperts(const std::string& mlp, Transformer::Layer* layer) {
    const ModelConfig& c = model_.config_;
    const std::string router = absl::StrCat(mlp, "gate.weight");
    packs_now_ = true;
    absl::Cleanup later = [&] { packs_now_ = false; };
    ASSIGN_OR_RETURN(const ConstMatrixView matrix, Matrix(router, c.num_experts, c.hidden_size));
    FoundParts found{.tensors = {router}, .parts = {{.matrix = matrix}}, .biases = {}};
    RETURN_IF_ERROR(
        PackWidened(&found, PartOrder::kConcatenated, /*wanted=*/std::nullopt, &layer->router));
    const RankShare own = model_.parts_.experts;
    layer->experts.first = own.begin;
    layer->experts.gate_up.resize(own.size());
    layer->experts.down.resize(own.size());
    for (int e = 0; e < c.num_experts; ++e) {
      const bool is_own = own.begin <= e && e < own.end;
      const auto outputs = [&](int count) { return is_own ? Whole(count) : Outputs{count, {}}; };
      PackedWeight nothing;
      PackedWeight* const gate_up = is_own ? &layer->experts.gate_up[e - own.begin] : &nothing;
      PackedWeight* const down = is_own ? &layer->experts.down[e - own.begin] : &nothing;
      RETURN_IF_ERROR(LoadFeedForward(absl::StrCat(mlp, "experts.", e, "."), outputs(c.expert_size),
                                      outputs(c.hidden_size),
                                      /*has_bias=*/false, gate_up, down));
    }
    return absl::OkStatus();
  }

  absl::Status LoadHead(ConstMatrixView embedding) {
    WeightPart part{.matrix = embedding, .bias = nullptr};
    if (model_.config_.tied_embeddings) {
      ignored_.insert("lm_head.weight");  // as the reference does
    } else {
      ASSIGN_OR_RETURN(part.matrix, Matrix("lm_head.weight", model_.config_.vocab_size,
                                           model_.config_.hidden_size));
    }
    if (head_tokens_ > part.matrix.rows) {
      return FieldError("draft_head_tokens",
                        absl::StrCat("found ", head_tokens_, ", allowed: up to ", part.matrix.rows,
                                     ", the vocabulary of ", path_));
    }
    const std::optional<DType> format = FormatOf(part.matrix, kHeadFormat);
    model_.head_row_bytes_ =
        static_cast<int64_t>(RowBytes(format.value_or(part.matrix.dtype), part.matrix.cols));
    if (sets_head_) {
      model_.head_format_ = format;
      return absl::OkStatus();
    }
    if (head_tokens_ > 0) part.matrix.rows = head_tokens_;
    model_.num_head_tokens_ = part.matrix.rows;
    model_.parts_ = model_.PartsOf(model_.group_ == nullptr ? 0 : model_.group_->rank());
    part.matrix = RowsOf(part.matrix, model_.parts_.head_rows);
    if (part.matrix.rows == 0) return absl::OkStatus();
    return Pack({part}, PartOrder::kConcatenated, kHeadFormat,
                {model_.config_.tied_embeddings ? "model.embed_tokens.weight" : "lm_head.weight"},
                &model_.head_);
  }

  // A tensor that the architecture has no place for would have changed the result.
  absl::Status CheckAllUsed() const {
    for (const std::string& name : model_.weights_->names()) {
      if (used_.contains(name) || ignored_.contains(name) || IsDerivable(name)) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          model_.weights_->Where(name), " has no place in a ", model_.config_.family, " model of ",
          model_.config_.num_layers, " layers as its configuration describes it"));
    }
    return absl::OkStatus();
  }

  Transformer& model_;
  const std::optional<DType> quantized_;
  const Transformer::Quantize which_;
  const int head_tokens_;  // 0 for all
  const bool sets_head_;   // the head is left out
  const std::function<void(int64_t, int64_t)> on_packing_;
  const std::string path_;
  const PackedFile* packed_ = nullptr;  // to take weights from, or none
  PackedFileWriter* writer_ = nullptr;  // to put them into, or none
  int64_t num_to_write_ = 0;            // parameters
  bool only_checks_ = false;            // the descriptions of matrices
  bool packs_now_ = false;              // and not when they are first read
  std::set<std::string> used_;
  std::set<std::string> ignored_;
};

namespace {

// How the weights of a checkpoint are changed by loading it.
std::string FormOf(const Transformer::LoadOptions& options, const Weights& weights) {
  const std::string quantization = weights.quantization();
  return absl::StrCat("quantized ",
                      options.quantized.has_value() ? NameOf(*options.quantized) : "not",
                      options.which == Transformer::Quantize::kAll ? ", all" : "",
                      options.has_exact_activations ? ", exact activations" : "",
                      quantization.empty() ? "" : ", ", quantization);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Transformer>> Transformer::LoadFrom(const Files& files,
                                                                   Backend* backend,
                                                                   const LoadOptions& options,
                                                                   PackedFile* packed) {
  std::unique_ptr<Transformer> model(new Transformer(backend, files, options));
  model->weights_form_ = FormOf(options, *files.weights);
  RETURN_IF_ERROR(TransformerLoader(files.path, options, model.get()).Load(packed));
  RETURN_IF_ERROR(backend->Synchronize());
  return model;
}

// With the cached weights of options.packed_folder, which are written first if they are missing or
// stale. Null if the model is too small for that.
absl::StatusOr<std::unique_ptr<Transformer>> Transformer::LoadPacked(const Files& files,
                                                                     Backend* backend,
                                                                     const LoadOptions& options) {
  const std::string quantization = files.weights->quantization();
  const std::string how = absl::StrCat(
      "quantized ", options.quantized.has_value() ? NameOf(*options.quantized) : "not",
      options.which == Quantize::kAll ? ", all" : "", ", heads turned ", files.config.rotary_dim,
      " of ", files.config.head_dim,
      options.head_tokens > 0 ? absl::StrCat(", head of ", options.head_tokens) : "",
      SetsHead(options, files.config) ? ", no head" : "",
      options.group == nullptr
          ? ""
          : absl::StrCat(", rank ", options.group->rank(), " of ", options.group->world()),
      quantization.empty() ? "" : ", ", quantization);
  ASSIGN_OR_RETURN(const PackedSource source,
                   PackedSource::Of(files.weights->files(), how, options.packed_folder));
  if (source.bytes < options.min_packed_bytes) return nullptr;
  RemoveUnfinishedPackedFiles(options.packed_folder);
  absl::StatusOr<PackedFile> kept = PackedFile::Open(source);
  if (kept.ok()) {
    auto model = LoadFrom(files, backend, options, &*kept);
    if (model.ok()) return model;
  } else if (!absl::IsNotFound(kept.status()) && !absl::IsFailedPrecondition(kept.status())) {
    Log(LogLevel::kWarning,
        absl::StrCat(kept.status().message(), "; the weights are packed again"));
  }
  // A model that is refused is refused before packing is announced and begun.
  Transformer checked(backend, files, options);
  RETURN_IF_ERROR(TransformerLoader(files.path, options, &checked).Check());
  ASSIGN_OR_RETURN(PackedFileWriter writer,
                   PackedFileWriter::Create(source, TransformerLoader::MostEntries(files.config)));
  Log(LogLevel::kInfo, absl::StrCat("packing the weights of ", files.path,
                                    " once, for later starts to map: ", source.path));
  Transformer unfilled(backend, files, options);
  RETURN_IF_ERROR(
      TransformerLoader(files.path, options, &unfilled).Write(&writer, checked.num_parameters()));
  ASSIGN_OR_RETURN(PackedFile packed, PackedFile::Open(source));
  return LoadFrom(files, backend, options, &packed);
}

absl::StatusOr<std::unique_ptr<Transformer>> Transformer::Load(const std::string& folder,
                                                               Backend* backend,
                                                               const LoadOptions& options) {
  Files files{.path = folder, .config = {}, .weights = {}};
  ASSIGN_OR_RETURN(files.config, ReadModelConfig(folder, options.allowed_config_keys));
  if (options.context > files.config.context_length) {
    return FieldError("context",
                      absl::StrCat("found ", options.context, ", allowed: at most ",
                                   files.config.context_length, ", which ", folder, " has"));
  }
  if (options.context > 0) files.config.context_length = options.context;
  const bool as_floats = options.has_exact_activations || options.quantized.has_value();
  ASSIGN_OR_RETURN(
      std::shared_ptr<const Weights> stored,
      Weights::Open(folder, as_floats ? QuantizedForm::kFloats : QuantizedForm::kBlocks));
  if (const std::string quantization = stored->quantization(); !quantization.empty()) {
    Log(LogLevel::kInfo, absl::StrCat("weights of ", folder, " were quantised: ", quantization));
  }
  ASSIGN_OR_RETURN(files.weights, ArrangeWeights(std::move(stored), files.config));
  absl::Status not_cached;
  if (!options.packed_folder.empty() && backend->memory_is_host()) {
    auto packed = LoadPacked(files, backend, options);
    if (packed.ok() && *packed != nullptr) return packed;
    not_cached = packed.status();
  }
  ASSIGN_OR_RETURN(auto model, LoadFrom(files, backend, options, nullptr));
  if (!not_cached.ok()) {
    Log(LogLevel::kWarning, absl::StrCat("packed weights are not cached: ", not_cached.message()));
  }
  return model;
}

// Weights that have been packed leave the files' memory.
void Transformer::ForgetPacked() {
  while (!unpacked_.empty() && unpacked_.front().weight->unpacked.empty()) {
    for (const std::string& tensor : unpacked_.front().tensors) weights_->Forget(tensor);
    unpacked_.pop_front();
  }
}

}  // namespace tandem
