#include "model/checkpoint/model_tensors.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "base/check.h"
#include "base/hash_map.h"
#include "base/json/json_text.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "kernels/blocks.h"
#include "model/checkpoint/model_families.h"

namespace tandem {
namespace {

class Collector {
 public:
  void Matrix(std::string name, int64_t outputs, int64_t inputs,
              TensorRole role = TensorRole::kMatrix) {
    tensors_.push_back({std::move(name), {outputs, inputs}, role});
  }
  void Norm(std::string name, int64_t size) {
    tensors_.push_back({std::move(name), {size}, TensorRole::kNorm});
  }
  // Adds a projection `name`.weight, and `name`.bias if it has one.
  void Projection(const std::string& name, int64_t outputs, int64_t inputs, bool has_bias) {
    Matrix(absl::StrCat(name, ".weight"), outputs, inputs);
    if (has_bias) tensors_.push_back({absl::StrCat(name, ".bias"), {outputs}, TensorRole::kBias});
  }

  std::vector<TensorSpec> Sorted() && {
    std::sort(tensors_.begin(), tensors_.end(),
              [](const TensorSpec& a, const TensorSpec& b) { return a.name < b.name; });
    return std::move(tensors_);
  }

 private:
  std::vector<TensorSpec> tensors_;
};

void CollectLayer(const ModelConfig& c, int layer, Collector* tensors) {
  const std::string prefix = absl::StrCat("model.layers.", layer, ".");
  const std::string attention = absl::StrCat(prefix, "self_attn.");
  const std::string mlp = absl::StrCat(prefix, "mlp.");
  const int64_t query_size = int64_t{c.num_heads} * c.head_dim;
  const int64_t kv_size = int64_t{c.num_kv_heads} * c.head_dim;
  const auto norm = [&](const char* part) {
    tensors->Norm(absl::StrCat(prefix, part, ".weight"), c.hidden_size);
  };
  if (c.normalizes_inputs) norm(kAttentionNorm);
  if (c.normalizes_inputs && !c.is_parallel) norm(kMlpNorm);
  if (c.normalizes_outputs) norm(kAttentionOutputNorm);
  if (c.normalizes_outputs) norm(kMlpOutputNorm);
  if (c.state_input == StateInput::kNextToEmbedding) norm(kStateNorm);
  const int64_t inputs = c.attention_inputs();
  tensors->Projection(absl::StrCat(attention, "q_proj"), query_size, inputs, c.qkv_bias);
  tensors->Projection(absl::StrCat(attention, "k_proj"), kv_size, inputs, c.qkv_bias);
  tensors->Projection(absl::StrCat(attention, "v_proj"), kv_size, inputs, c.qkv_bias);
  if (c.query_key_norm != QueryKeyNorm::kNone) {
    const bool is_each = c.query_key_norm == QueryKeyNorm::kEachHead;
    tensors->Norm(absl::StrCat(attention, "q_norm.weight"), is_each ? c.head_dim : query_size);
    tensors->Norm(absl::StrCat(attention, "k_norm.weight"), is_each ? c.head_dim : kv_size);
  }
  tensors->Projection(absl::StrCat(attention, "o_proj"), c.hidden_size, query_size, c.output_bias);
  if (c.has_experts(layer)) {
    tensors->Matrix(absl::StrCat(mlp, "gate.weight"), c.num_experts, c.hidden_size,
                    TensorRole::kRouter);
    for (int e = 0; e < c.num_experts; ++e) {
      const std::string expert = absl::StrCat(mlp, "experts.", e, ".");
      const auto matrix = [&](const char* name, int64_t outputs, int64_t inputs) {
        tensors->Matrix(absl::StrCat(expert, name, ".weight"), outputs, inputs,
                        TensorRole::kExpert);
      };
      matrix("gate_proj", c.expert_size, c.hidden_size);
      matrix("up_proj", c.expert_size, c.hidden_size);
      matrix("down_proj", c.hidden_size, c.expert_size);
    }
    return;
  }
  tensors->Projection(absl::StrCat(mlp, "gate_proj"), c.intermediate_size, c.hidden_size,
                      c.mlp_bias);
  tensors->Projection(absl::StrCat(mlp, "up_proj"), c.intermediate_size, c.hidden_size, c.mlp_bias);
  tensors->Projection(absl::StrCat(mlp, "down_proj"), c.hidden_size, c.intermediate_size,
                      c.mlp_bias);
}

// Adds the tensors of a draft head outside its layer.
void CollectHead(const ModelConfig& c, Collector* tensors) {
  tensors->Matrix("fc.weight", c.hidden_size, c.fc_inputs());
  if (c.norms_states) tensors->Norm(kStatesNorm, c.read_state_size());
  if (c.state_input == StateInput::kNextToEmbedding) return;
  tensors->Norm(absl::StrCat(kEmbeddingNorm, ".weight"), c.hidden_size);
  tensors->Norm(absl::StrCat(kStateNorm, ".weight"), c.hidden_size);
}

}  // namespace

int64_t TensorSpec::num_elements() const {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

std::vector<TensorSpec> TensorsOf(const ModelConfig& config) {
  Collector tensors;
  const bool is_head = config.is_draft_head();
  if (!is_head || config.has_own_embedding) {
    tensors.Matrix(kEmbeddingTensor, config.vocab_size, config.hidden_size, TensorRole::kEmbedding);
  }
  if (is_head) CollectHead(config, &tensors);
  for (int layer = 0; layer < config.num_layers; ++layer) CollectLayer(config, layer, &tensors);
  tensors.Norm("model.norm.weight", config.hidden_size);
  if (!config.tied_embeddings) {
    tensors.Matrix(kHeadTensor, is_head ? config.draft_vocab_size : config.vocab_size,
                   config.hidden_size);
  }
  return std::move(tensors).Sorted();
}

double ShareRead(const TensorSpec& tensor, const ModelConfig& config) {
  switch (tensor.role) {
    case TensorRole::kMatrix:
    case TensorRole::kRouter:
      return 1.0;
    case TensorRole::kExpert:
      return static_cast<double>(config.experts_per_row) / config.num_experts;
    case TensorRole::kEmbedding:
      return config.tied_embeddings ? 1.0 : 0.0;
    case TensorRole::kNorm:
    case TensorRole::kBias:
      break;
  }
  return 0.0;
}

namespace {

constexpr absl::string_view kLayers = "model.layers.";
constexpr absl::string_view kExperts = ".experts.";
// Prefixes in models with parts other than text: as published, and as newer versions of the
// reference write them.
constexpr RenamedPart kTextPrefixes[] = {{"model.language_model.", "model."},
                                         {"language_model.", ""}};
// Prefixes of draft heads: the flat layout and that of speculators.
constexpr RenamedPart kHeadPrefixes[] = {{"midlayer.", "model.layers.0."},
                                         {"layers.0.", "model.layers.0."},
                                         {"embed_tokens.", "model.embed_tokens."},
                                         {"norm.", "model.norm."}};
// The tensors that no model reads, by the beginnings and the ends of their names.
struct UnusedTensors {
  absl::string_view prefix, suffix;
  bool in_other_parts = false;  // only in models with parts other than text
};
constexpr UnusedTensors kUnused[] = {
    // Images, which are refused in requests.
    {"vision_tower.", "", true},
    {"vision_model.", "", true},
    {"multi_modal_projector.", "", true},
    {"model.vision_tower.", "", true},
    {"model.multi_modal_projector.", "", true},
    // Tables in older checkpoints that follow from the configuration: the frequencies of rotations,
    // and the causal mask and the number that it writes.
    {"", "rotary_emb.inv_freq"},
    {"", "self_attn.bias"},
    {"", "self_attn.masked_bias"}};

// The source of a tensor: a stored one, or some of its rows.
struct Source {
  std::string stored;
  int64_t first_row = 0;
  int64_t num_rows = 0;         // 0: all
  int64_t num_stored_rows = 0;  // of the stored tensor, if num_rows > 0
  bool orders_heads = false;
  bool adds_offset = false;
};

// A name's parts: "model.layers.3." "self_attn.q_proj" ".weight".
struct LayerName {
  absl::string_view layer, part, kind;
};
bool Split(absl::string_view name, LayerName* split) {
  const size_t number_end = name.find('.', kLayers.size());
  const size_t last_dot = name.rfind('.');
  if (!absl::StartsWith(name, kLayers) || number_end == name.npos || number_end >= last_dot) {
    return false;
  }
  *split = {name.substr(0, number_end + 1), name.substr(number_end + 1, last_dot - number_end - 1),
            name.substr(last_dot)};
  return true;
}

// How a checkpoint stores the tensors that Transformer reads.
struct Storage {
  absl::Span<const RenamedPart> parts{};
  RotaryPairs rotary_pairs = RotaryPairs::kHalves;
  float norm_offset = 0.0f;
  bool has_other_parts = false;
  bool is_head = false;           // names are those of a draft head
  bool has_absolute_ids = false;  // else ids are stored as offsets to the row numbers
};

absl::StatusOr<Storage> StorageOf(const Weights& stored, const ModelConfig& config,
                                  const ModelFamily& family) {
  const std::string gguf = stored.gguf_architecture();
  if (gguf.empty()) {
    return Storage{.parts = family.parts,
                   .rotary_pairs = family.rotary_pairs,
                   .norm_offset = family.norm_offset,
                   .has_other_parts = config.has_other_parts,
                   .is_head = config.is_draft_head()};
  }
  if (family.gguf.architecture == nullptr || gguf != family.gguf.architecture) {
    return NotAllowed(
        absl::StrCat(stored.files().front(), ": key \"general.architecture\""), Quoted(gguf),
        absl::StrCat(family.gguf.architecture == nullptr ? "none" : family.gguf.architecture,
                     ", as the configuration next to it describes a ", config.family, " model"));
  }
  return Storage{.rotary_pairs = family.gguf.rotary_pairs,
                 .has_absolute_ids = true};  // GGUF norms include the offset
}

class ArrangedWeights : public Weights {
 public:
  ArrangedWeights(std::shared_ptr<const Weights> stored, const ModelConfig& config,
                  const Storage& storage)
      : stored_(std::move(stored)),
        config_(config),
        storage_(storage),
        orders_heads_(OrdersHeads(config, storage.rotary_pairs)) {}

  absl::Status Index() {
    for (const std::string& stored : stored_->names()) {
      if (IsUnused(stored)) continue;
      const std::string name = WithoutPrefix(stored);
      LayerName in_layer;
      if (!Split(name, &in_layer)) {
        const bool is_norm = name == "model.norm.weight";
        RETURN_IF_ERROR(
            Add(name, {.stored = stored, .adds_offset = is_norm && storage_.norm_offset != 0.0f}));
        continue;
      }
      RETURN_IF_ERROR(AddPart(stored, in_layer));
    }
    const auto head = sources_.find(kHeadTensor);
    if (config_.tied_embeddings && !config_.is_draft_head() && head != sources_.end() &&
        !sources_.contains(kEmbeddingTensor)) {
      const Source source = head->second;
      sources_.erase(head);
      sources_[kEmbeddingTensor] = source;
    }
    return absl::OkStatus();
  }

  bool Has(std::string_view name) const override { return sources_.contains(View(name)); }

  absl::StatusOr<ConstMatrixView> Get(std::string_view name,
                                      absl::Span<const int64_t> shape) const override {
    ASSIGN_OR_RETURN(const ConstMatrixView described, Describe(name, shape));
    const auto found = sources_.find(View(name));
    // Optional tensors can be read by name but are not listed.
    if (found == sources_.end()) return stored_->Get(StoredName(name), shape);
    const Source& source = found->second;
    ASSIGN_OR_RETURN(ConstMatrixView part, stored_->Get(source.stored, StoredShape(source, shape)));
    if (source.num_rows > 0) part = RowsOf(part, source, shape);
    if (!source.orders_heads && !source.adds_offset) return part;
    const std::lock_guard<std::mutex> lock(copies_mutex_);
    std::vector<std::byte>& copy = copies_[found->first];
    if (copy.empty()) copy = source.adds_offset ? WithOffset(part) : InOrder(part, shape);
    ConstMatrixView arranged = described;
    arranged.data = copy.data();
    return arranged;
  }

  absl::StatusOr<ConstMatrixView> Describe(std::string_view name,
                                           absl::Span<const int64_t> shape) const override {
    const auto found = sources_.find(View(name));
    if (found == sources_.end()) return stored_->Describe(StoredName(name), shape);
    const Source& source = found->second;
    TANDEM_CHECK(source.num_rows == 0 || source.num_rows == shape[0]);
    ASSIGN_OR_RETURN(ConstMatrixView matrix,
                     stored_->Describe(source.stored, StoredShape(source, shape)));
    if (source.num_rows > 0) matrix = RowsOf(matrix, source, shape);
    if (source.adds_offset) matrix.dtype = DType::kF32;
    return matrix;
  }

  absl::StatusOr<std::vector<int64_t>> GetIntegers(std::string_view name,
                                                   int64_t size) const override {
    const auto found = sources_.find(View(name));
    const std::string stored = found == sources_.end() ? std::string(name) : found->second.stored;
    ASSIGN_OR_RETURN(std::vector<int64_t> numbers, stored_->GetIntegers(stored, size));
    if (name == kDraftIds && !storage_.has_absolute_ids) {
      // The sum wraps around; one that is not an id is refused later.
      for (int64_t i = 0; i < size; ++i) {
        numbers[i] = static_cast<int64_t>(static_cast<uint64_t>(numbers[i]) + i);
      }
    }
    return numbers;
  }

  void Forget(std::string_view name) const override {
    const auto found = sources_.find(View(name));
    TANDEM_CHECK(found != sources_.end());
    stored_->Forget(found->second.stored);
    const std::lock_guard<std::mutex> lock(copies_mutex_);
    copies_.erase(found->first);
  }

  bool IsMade(std::string_view name) const override { return stored_->IsMade(Find(name).stored); }
  std::string quantization() const override { return stored_->quantization(); }
  std::vector<std::string> files() const override { return stored_->files(); }
  std::vector<std::string> names() const override { return SortedKeys(sources_); }
  int64_t num_elements(std::string_view name) const override {
    const Source& source = Find(name);
    const int64_t all = stored_->num_elements(source.stored);
    return source.num_rows == 0 ? all : all / source.num_stored_rows * source.num_rows;
  }
  std::string Where(std::string_view name) const override {
    return stored_->Where(Find(name).stored);
  }

 private:
  const Source& Find(std::string_view name) const {
    const auto found = sources_.find(View(name));
    TANDEM_CHECK(found != sources_.end());
    return found->second;
  }

  bool IsUnused(absl::string_view stored) const {
    return absl::c_any_of(kUnused, [&](const UnusedTensors& unused) {
      return (storage_.has_other_parts || !unused.in_other_parts) &&
             absl::StartsWith(stored, unused.prefix) && absl::EndsWith(stored, unused.suffix);
    });
  }

  // Returns the name without the prefix of the text part.
  std::string WithoutPrefix(absl::string_view stored) const {
    if (storage_.is_head) {
      for (const auto& [prefix, replacement] : kHeadPrefixes) {
        if (absl::ConsumePrefix(&stored, prefix)) return absl::StrCat(replacement, stored);
      }
      return std::string(stored);
    }
    if (!storage_.has_other_parts) return std::string(stored);
    for (const auto& [prefix, replacement] : kTextPrefixes) {
      if (absl::ConsumePrefix(&stored, prefix)) return absl::StrCat(replacement, stored);
    }
    return std::string(stored);
  }

  absl::Status AddPart(const std::string& stored, const LayerName& at) {
    const auto add = [&](absl::string_view part, Source source) {
      source.orders_heads = orders_heads_ && IsRotated(part);
      source.adds_offset = storage_.norm_offset != 0.0f && absl::EndsWith(part, "norm");
      return Add(absl::StrCat(at.layer, part, at.kind), source);
    };
    const int64_t queries = int64_t{config_.num_heads} * config_.head_dim;
    const int64_t keys = int64_t{config_.num_kv_heads} * config_.head_dim;
    const int64_t gates = config_.intermediate_size;
    if (at.part == "self_attn.qkv_proj") {
      const int64_t all = queries + 2 * keys;
      RETURN_IF_ERROR(add("self_attn.q_proj", {stored, 0, queries, all}));
      RETURN_IF_ERROR(add("self_attn.k_proj", {stored, queries, keys, all}));
      return add("self_attn.v_proj", {stored, queries + keys, keys, all});
    }
    if (at.part == "mlp.gate_up_proj") {
      RETURN_IF_ERROR(add("mlp.gate_proj", {stored, 0, gates, 2 * gates}));
      return add("mlp.up_proj", {stored, gates, gates, 2 * gates});
    }
    if (const size_t experts = at.part.find(kExperts); experts != at.part.npos) {
      return add(ExpertPart(at.part.substr(experts)), {.stored = stored});
    }
    return add(Renamed(at.part), {.stored = stored});
  }

  absl::string_view Renamed(absl::string_view part) const {
    for (const RenamedPart& named : storage_.parts) {
      if (named.stored == part) return named.name;
    }
    return part;
  }

  // Returns "mlp.experts.7.gate_proj" for ".experts.7.w1".
  std::string ExpertPart(absl::string_view part) const {
    const size_t last_dot = part.rfind('.');
    return absl::StrCat("mlp", part.substr(0, last_dot + 1), Renamed(part.substr(last_dot + 1)));
  }

  static bool IsRotated(absl::string_view part) {
    return part == "self_attn.q_proj" || part == "self_attn.k_proj" || part == "self_attn.q_norm" ||
           part == "self_attn.k_norm";
  }

  absl::Status Add(const std::string& name, const Source& source) {
    const auto [place, is_new] = sources_.try_emplace(name, source);
    if (is_new) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(stored_->Where(source.stored),
                                                   ": has the place of ",
                                                   stored_->Where(place->second.stored)));
  }

  // Returns the file's name of a missing tensor.
  std::string StoredName(std::string_view name) const {
    if (storage_.is_head) return StoredNameInHead(View(name));
    LayerName at;
    if (!Split(View(name), &at)) return std::string(name);
    for (const RenamedPart& named : storage_.parts) {
      if (named.name == at.part) return absl::StrCat(at.layer, named.stored, at.kind);
    }
    return std::string(name);
  }

  // The same for a draft head, with the prefix that the file's other tensors have.
  std::string StoredNameInHead(absl::string_view name) const {
    for (const auto& [prefix, replacement] : kHeadPrefixes) {
      absl::string_view rest = name;
      const std::string start = prefix;
      if (absl::ConsumePrefix(&rest, replacement) &&
          absl::c_any_of(stored_->names(), [&](const std::string& stored) {
            return absl::StartsWith(stored, start);
          })) {
        return absl::StrCat(start, rest);
      }
    }
    return std::string(name);
  }

  static std::vector<int64_t> StoredShape(const Source& source, absl::Span<const int64_t> shape) {
    std::vector<int64_t> stored(shape.begin(), shape.end());
    if (source.num_rows > 0) stored[0] = source.num_stored_rows;
    return stored;
  }

  // Returns the rows of `source`. A vector is a matrix of one row, of which these are columns.
  static ConstMatrixView RowsOf(ConstMatrixView all, const Source& source,
                                absl::Span<const int64_t> shape) {
    const size_t row_bytes = shape.size() == 2 ? RowBytes(all.dtype, all.cols) : SizeOf(all.dtype);
    if (all.data != nullptr) {
      all.data = static_cast<const std::byte*>(all.data) + source.first_row * row_bytes;
    }
    if (shape.size() == 2) {
      all.rows = static_cast<int>(shape[0]);
    } else {
      all.cols = static_cast<int>(shape[0]);
    }
    return all;
  }

  std::vector<std::byte> InOrder(const ConstMatrixView& part,
                                 absl::Span<const int64_t> shape) const {
    const int64_t rows = shape[0];
    const size_t row_bytes =
        shape.size() == 2 ? RowBytes(part.dtype, part.cols) : SizeOf(part.dtype);
    std::vector<std::byte> ordered(rows * row_bytes);
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t in_head = row % config_.head_dim;
      const int64_t from = row - in_head + StoredRow(config_, storage_.rotary_pairs, in_head);
      std::memcpy(ordered.data() + row * row_bytes,
                  static_cast<const std::byte*>(part.data) + from * row_bytes, row_bytes);
    }
    return ordered;
  }

  std::vector<std::byte> WithOffset(const ConstMatrixView& norm) const {
    std::vector<float> values(norm.cols);
    WidenRow(norm.data, norm.dtype, norm.cols, values.data());
    for (float& value : values) value += storage_.norm_offset;
    std::vector<std::byte> bytes(values.size() * sizeof(float));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  }

  const std::shared_ptr<const Weights> stored_;
  const ModelConfig config_;
  const Storage storage_;
  const bool orders_heads_;
  HashMap<std::string, Source> sources_;
  mutable std::mutex copies_mutex_;
  mutable std::map<std::string, std::vector<std::byte>> copies_;
};

}  // namespace

bool OrdersHeads(const ModelConfig& config, RotaryPairs pairs) {
  return pairs != RotaryPairs::kHalves || config.rotary_dim != config.head_dim;
}

int64_t StoredRow(const ModelConfig& config, RotaryPairs pairs, int64_t to) {
  const int64_t half = config.head_dim / 2;
  const int64_t rotated = config.rotary_dim / 2;  // pairs
  const int64_t pair = to % half;
  const bool is_second = to >= half;
  if (pair >= rotated) return 2 * rotated + (is_second ? half - rotated : 0) + pair - rotated;
  if (pairs == RotaryPairs::kInterleaved) return 2 * pair + (is_second ? 1 : 0);
  return pair + (is_second ? rotated : 0);
}

absl::StatusOr<std::shared_ptr<const Weights>> ArrangeWeights(std::shared_ptr<const Weights> stored,
                                                              const ModelConfig& config) {
  const ModelFamily* const family = FamilyOfType(config.family);
  if (family == nullptr) return stored;
  ASSIGN_OR_RETURN(const Storage storage, StorageOf(*stored, config, *family));
  auto arranged = std::make_shared<ArrangedWeights>(std::move(stored), config, storage);
  RETURN_IF_ERROR(arranged->Index());
  return arranged;
}

bool HasDoubtfulHead(const Weights& weights, const ModelConfig& config) {
  return config.tied_embeddings && !config.is_draft_head() && weights.Has(kEmbeddingTensor) &&
         weights.Has(kHeadTensor);
}

namespace {

absl::StatusOr<bool> IsHeadEqualToEmbedding(const Weights& weights, const ModelConfig& config) {
  // Quantising one of the two rounds it.
  if (weights.IsMade(kHeadTensor) != weights.IsMade(kEmbeddingTensor)) return false;
  const std::vector<int64_t> shape = {config.vocab_size, config.hidden_size};
  ASSIGN_OR_RETURN(const ConstMatrixView embedding, weights.Get(kEmbeddingTensor, shape));
  ASSIGN_OR_RETURN(const ConstMatrixView head, weights.Get(kHeadTensor, shape));
  const size_t row_bytes = RowBytes(head.dtype, head.cols);
  const bool has_one_dtype = head.dtype == embedding.dtype;
  const auto row_of = [](const ConstMatrixView& matrix, int row) {
    return static_cast<const std::byte*>(matrix.data) + row * RowBytes(matrix.dtype, matrix.stride);
  };
  std::vector<float> of_head(head.cols);
  std::vector<float> of_embedding(head.cols);
  for (int row = 0; row < head.rows; ++row) {
    const std::byte* const a = row_of(head, row);
    const std::byte* const b = row_of(embedding, row);
    if (has_one_dtype && (a == b || std::memcmp(a, b, row_bytes) == 0)) continue;
    WidenRow(a, head.dtype, head.cols, of_head.data());
    WidenRow(b, embedding.dtype, head.cols, of_embedding.data());
    if (of_head != of_embedding) return false;
  }
  weights.Forget(kHeadTensor);
  return true;
}

}  // namespace

absl::Status SettleHead(const Weights& weights, std::optional<bool> is_equal, ModelConfig* config) {
  if (!HasDoubtfulHead(weights, *config)) return absl::OkStatus();
  if (!is_equal.has_value()) {
    ASSIGN_OR_RETURN(is_equal, IsHeadEqualToEmbedding(weights, *config));
  }
  if (*is_equal) return absl::OkStatus();
  config->tied_embeddings = false;
  Log(LogLevel::kWarning,
      absl::StrCat(weights.Where(kHeadTensor), ": is used as the head, because it differs from ",
                   "the embedding, although tie_word_embeddings says that they are one"));
  return absl::OkStatus();
}

absl::Status CheckAllHavePlaces(const Weights& weights, const ModelConfig& config) {
  HashSet<std::string> places;
  for (TensorSpec& tensor : TensorsOf(config)) places.insert(std::move(tensor.name));
  if (config.is_draft_head()) places.insert({kDraftIds, kIsDrafted});
  if (config.tied_embeddings) places.insert(kHeadTensor);  // equal to the embedding: SettleHead
  for (const std::string& name : weights.names()) {
    if (places.contains(name)) continue;
    return absl::InvalidArgumentError(absl::StrCat(weights.Where(name), " has no place in a ",
                                                   config.family, " model of ", config.num_layers,
                                                   " layers as its configuration describes it"));
  }
  return absl::OkStatus();
}

}  // namespace tandem
