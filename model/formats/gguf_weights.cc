#include "model/formats/gguf_weights.h"

#include <algorithm>
#include <climits>
#include <cstring>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/hash_map.h"
#include "base/mapped_file.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "kernels/blocks.h"
#include "model/formats/gguf.h"
#include "model/formats/json_text.h"
#include "model/gguf_config.h"

namespace tandem {
namespace {

constexpr char kGgufLayer[] = "blk.";
constexpr char kLayer[] = "model.layers.";
constexpr char kDivisors[] = "rope_freqs.weight";

struct NamePair {
  absl::string_view gguf;
  absl::string_view name;
};
constexpr NamePair kTensorNames[] = {{"token_embd.weight", "model.embed_tokens.weight"},
                                     {"output_norm.weight", "model.norm.weight"},
                                     {"output.weight", "lm_head.weight"}};
// Of a layer's tensors what stands between its number and ".weight" or ".bias".
constexpr NamePair kLayerNames[] = {
    {"attn_norm", "input_layernorm"},    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},      {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"}, {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"}, {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"}};

// `text` with the other of a pair's names, or nothing.
std::string Translated(absl::string_view text, absl::Span<const NamePair> pairs, bool to_gguf) {
  for (const NamePair& pair : pairs) {
    if (text == (to_gguf ? pair.name : pair.gguf)) {
      return std::string(to_gguf ? pair.gguf : pair.name);
    }
  }
  return "";
}

// The name of a tensor in the one or the other kind of checkpoint; empty if it is of none.
std::string Translated(absl::string_view name, bool to_gguf) {
  if (std::string whole = Translated(name, kTensorNames, to_gguf); !whole.empty()) return whole;
  const absl::string_view prefix = to_gguf ? kLayer : kGgufLayer;
  const size_t last_dot = name.rfind('.');
  const size_t number_end = name.find('.', prefix.size());
  if (!absl::StartsWith(name, prefix) || number_end == name.npos || number_end >= last_dot) {
    return "";
  }
  const absl::string_view kind = name.substr(last_dot);
  const std::string place =
      Translated(name.substr(number_end + 1, last_dot - number_end - 1), kLayerNames, to_gguf);
  if (place.empty() || (kind != ".weight" && kind != ".bias")) return "";
  return absl::StrCat(to_gguf ? kGgufLayer : kLayer,
                      name.substr(prefix.size(), number_end - prefix.size()), ".", place, kind);
}

// Heads whose rows a GGUF model has as neighbours; 0 where rows lie as in a checkpoint.
int NumSplitHeads(absl::string_view name, const ModelConfig& config) {
  if (!HasNeighbourRows(config)) return 0;
  if (absl::StrContains(name, ".self_attn.q_proj.")) return config.num_heads;
  if (absl::StrContains(name, ".self_attn.k_proj.")) return config.num_kv_heads;
  return 0;
}

// Row 2 i + half of a head, as neighbours lie, is row half * d / 2 + i as halves do.
int64_t RowOfHalves(int64_t row, int64_t head_rows) {
  const int64_t in_head = row % head_rows;
  return row - in_head + in_head % 2 * (head_rows / 2) + in_head / 2;
}

class GgufWeights : public Weights {
 public:
  explicit GgufWeights(std::unique_ptr<GgufFile> file) : file_(std::move(file)) {}

  absl::Status Index() {
    ASSIGN_OR_RETURN(const ModelConfig config, ReadGgufConfig(*file_));
    for (const GgufTensor& tensor : file_->tensors()) {
      if (tensor.name == kDivisors) continue;
      const std::string name = Translated(tensor.name, /*to_gguf=*/false);
      if (name.empty()) {
        return absl::InvalidArgumentError(absl::StrCat(
            Where(tensor), ": found it, allowed: the tensors of llama, qwen2 and qwen3"));
      }
      const int num_heads = NumSplitHeads(name, config);
      if (num_heads > 0 && tensor.shape[0] != int64_t{num_heads} * config.head_dim) {
        return absl::InvalidArgumentError(
            absl::StrCat(Where(tensor), ": shape: found ", ShapeText(tensor.shape),
                         ", allowed: ", num_heads, " heads of ", config.head_dim, " rows"));
      }
      tensors_.emplace(name, Tensor{&tensor, num_heads});
    }
    return absl::OkStatus();
  }

  bool Has(std::string_view name) const override { return tensors_.contains(View(name)); }

  absl::StatusOr<ConstMatrixView> Get(std::string_view name,
                                      absl::Span<const int64_t> shape) const override {
    ASSIGN_OR_RETURN(ConstMatrixView matrix, Describe(name, shape));
    matrix.data = Halves(tensors_.find(View(name))->second);
    return matrix;
  }

  absl::StatusOr<ConstMatrixView> Describe(std::string_view name,
                                           absl::Span<const int64_t> shape) const override {
    TANDEM_CHECK(shape.size() == 1 || shape.size() == 2);
    const auto found = tensors_.find(View(name));
    if (found == tensors_.end()) {
      return absl::NotFoundError(absl::StrCat(file_->path(), ": tensor ",
                                              Quoted(Translated(View(name), /*to_gguf=*/true)),
                                              ": not found, wanted with shape ", ShapeText(shape)));
    }
    const GgufTensor& tensor = *found->second.tensor;
    if (!std::equal(shape.begin(), shape.end(), tensor.shape.begin(), tensor.shape.end())) {
      return absl::InvalidArgumentError(absl::StrCat(Where(tensor), ": shape: found ",
                                                     ShapeText(tensor.shape),
                                                     ", allowed: ", ShapeText(shape)));
    }
    if (shape.size() == 1 && IsBlocks(tensor.dtype)) {
      return absl::InvalidArgumentError(absl::StrCat(Where(tensor), ": dtype: found ",
                                                     NameOf(tensor.dtype),
                                                     ", allowed: float32, float16, bfloat16"));
    }
    const int64_t rows = shape.size() == 2 ? shape[0] : 1;
    return ConstMatrixView(nullptr, tensor.dtype, static_cast<int>(rows),
                           static_cast<int>(shape.back()), shape.back());
  }

  void Forget(std::string_view name) const override {
    const GgufTensor& tensor = Find(name);
    MappedFile::Forget(tensor.bytes);
    const std::lock_guard<std::mutex> lock(copies_mutex_);
    copies_.erase(&tensor);
  }

  std::vector<std::string> files() const override { return file_->files(); }
  bool is_arranged() const override { return true; }
  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : tensors_) names.push_back(name);
    std::sort(names.begin(), names.end());
    return names;
  }

  int64_t num_elements(std::string_view name) const override {
    int64_t product = 1;
    for (const int64_t size : Find(name).shape) product *= size;
    return product;
  }

  std::string Where(std::string_view name) const override { return Where(Find(name)); }

 private:
  struct Tensor {
    const GgufTensor* tensor = nullptr;
    int num_heads = 0;  // NumSplitHeads
  };

  static std::string Where(const GgufTensor& tensor) {
    return absl::StrCat(*tensor.path, ": tensor ", Quoted(tensor.name));
  }

  const GgufTensor& Find(std::string_view name) const {
    const auto found = tensors_.find(View(name));
    TANDEM_CHECK(found != tensors_.end());
    return *found->second.tensor;
  }

  // The tensor's first row, of one whose heads' rows are neighbours in a copy.
  const void* Halves(const Tensor& entry) const {
    const GgufTensor& tensor = *entry.tensor;
    if (entry.num_heads == 0) return tensor.bytes.data();
    const std::lock_guard<std::mutex> lock(copies_mutex_);
    std::unique_ptr<std::byte[]>& copy = copies_[&tensor];
    if (copy != nullptr) return copy.get();
    copy.reset(new std::byte[tensor.bytes.size()]);
    const int64_t num_rows = tensor.shape[0];
    const size_t row_bytes = tensor.bytes.size() / num_rows;
    const int64_t head_rows = num_rows / entry.num_heads;
    for (int64_t row = 0; row < num_rows; ++row) {
      const int64_t to = RowOfHalves(row, head_rows);
      std::memcpy(copy.get() + to * row_bytes, tensor.bytes.data() + row * row_bytes, row_bytes);
    }
    return copy.get();
  }

  const std::unique_ptr<GgufFile> file_;
  HashMap<std::string, Tensor> tensors_;
  mutable std::mutex copies_mutex_;
  mutable std::map<const GgufTensor*, std::unique_ptr<std::byte[]>> copies_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Weights>> OpenGgufWeights(const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<GgufFile> file, GgufFile::Open(path));
  auto weights = std::make_unique<GgufWeights>(std::move(file));
  RETURN_IF_ERROR(weights->Index());
  return weights;
}

std::string GgufTensorName(absl::string_view name) {
  std::string translated = Translated(name, /*to_gguf=*/true);
  TANDEM_CHECK(!translated.empty());
  return translated;
}

int64_t CheckpointRow(absl::string_view name, const ModelConfig& config, int64_t num_rows,
                      int64_t row) {
  const int num_heads = NumSplitHeads(name, config);
  return num_heads == 0 ? row : RowOfHalves(row, num_rows / num_heads);
}

}  // namespace tandem
