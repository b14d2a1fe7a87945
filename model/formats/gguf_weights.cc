#include "model/formats/gguf_weights.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
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
#include "model/model_families.h"

namespace tandem {
namespace {

constexpr char kGgufLayer[] = "blk.";
constexpr char kLayer[] = "model.layers.";
constexpr char kUp[] = "ffn_up";
struct NamePair {
  const char* gguf;
  const char* name;
};
constexpr NamePair kTensorNames[] = {{"token_embd.weight", "model.embed_tokens.weight"},
                                     {"output_norm.weight", "model.norm.weight"},
                                     {"output.weight", "lm_head.weight"}};
// Of a layer's tensors what stands between its number and ".weight" or ".bias".
constexpr NamePair kLayerNames[] = {{"attn_norm", kAttentionNorm},
                                    {"attn_q", "self_attn.q_proj"},
                                    {"attn_k", "self_attn.k_proj"},
                                    {"attn_v", "self_attn.v_proj"},
                                    {"attn_qkv", "self_attn.qkv_proj"},
                                    {"attn_output", "self_attn.o_proj"},
                                    {"attn_q_norm", "self_attn.q_norm"},
                                    {"attn_k_norm", "self_attn.k_norm"},
                                    {"post_attention_norm", kAttentionOutputNorm},
                                    {"ffn_norm", kMlpNorm},
                                    {"ffn_gate", "mlp.gate_proj"},
                                    {kUp, "mlp.up_proj"},
                                    {"ffn_down", "mlp.down_proj"},
                                    {"post_ffw_norm", kMlpOutputNorm}};
constexpr const char* kOfTheConfiguration[] = {kGgufDivisors, kGgufLongDivisors,
                                               kGgufShortDivisors};
constexpr NamePair kJoinedNames[] = {{kUp, "mlp.gate_up_proj"}};

// `text` with the other of a pair's names, or nothing.
std::string Translated(absl::string_view text, absl::Span<const NamePair> pairs, bool to_gguf) {
  for (const NamePair& pair : pairs) {
    if (text == (to_gguf ? pair.name : pair.gguf)) {
      return std::string(to_gguf ? pair.gguf : pair.name);
    }
  }
  return "";
}

// The name of a tensor in a GGUF model of this form or as gguf_weights.h says; empty if it is of
// neither.
std::string Translated(absl::string_view name, const GgufForm& form, bool to_gguf) {
  if (std::string whole = Translated(name, kTensorNames, to_gguf); !whole.empty()) return whole;
  const absl::string_view prefix = to_gguf ? kLayer : kGgufLayer;
  const size_t last_dot = name.rfind('.');
  const size_t number_end = name.find('.', prefix.size());
  if (!absl::StartsWith(name, prefix) || number_end == name.npos || number_end >= last_dot) {
    return "";
  }
  const absl::string_view kind = name.substr(last_dot);
  const absl::string_view part = name.substr(number_end + 1, last_dot - number_end - 1);
  std::string place;
  if (form.joins_gate_and_up) place = Translated(part, kJoinedNames, to_gguf);
  if (place.empty()) place = Translated(part, kLayerNames, to_gguf);
  if (place.empty() || (kind != ".weight" && kind != ".bias")) return "";
  return absl::StrCat(to_gguf ? kGgufLayer : kLayer,
                      name.substr(prefix.size(), number_end - prefix.size()), ".", place, kind);
}

class GgufWeights : public Weights {
 public:
  explicit GgufWeights(std::unique_ptr<GgufFile> file) : file_(std::move(file)) {}

  absl::Status Index() {
    ASSIGN_OR_RETURN(family_, GgufFamilyOf(*file_));
    for (const GgufTensor& tensor : file_->tensors()) {
      if (absl::c_linear_search(kOfTheConfiguration, tensor.name)) continue;
      const std::string name = Translated(tensor.name, family_->gguf, /*to_gguf=*/false);
      if (name.empty()) {
        return absl::InvalidArgumentError(absl::StrCat(Where(tensor), ": found it, allowed: the ",
                                                       "tensors of ", family_->gguf.architecture));
      }
      tensors_.emplace(name, &tensor);
    }
    return absl::OkStatus();
  }

  bool Has(std::string_view name) const override { return tensors_.contains(View(name)); }

  absl::StatusOr<ConstMatrixView> Get(std::string_view name,
                                      absl::Span<const int64_t> shape) const override {
    ASSIGN_OR_RETURN(ConstMatrixView matrix, Describe(name, shape));
    matrix.data = Find(name).bytes.data();
    return matrix;
  }

  absl::StatusOr<ConstMatrixView> Describe(std::string_view name,
                                           absl::Span<const int64_t> shape) const override {
    TANDEM_CHECK(shape.size() == 1 || shape.size() == 2);
    const auto found = tensors_.find(View(name));
    if (found == tensors_.end()) {
      return absl::NotFoundError(absl::StrCat(file_->path(), ": tensor ",
                                              Quoted(Translated(View(name), family_->gguf, true)),
                                              ": not found, wanted with shape ", ShapeText(shape)));
    }
    const GgufTensor& tensor = *found->second;
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

  void Forget(std::string_view name) const override { MappedFile::Forget(Find(name).bytes); }

  std::vector<std::string> files() const override { return file_->files(); }
  std::string gguf_architecture() const override { return family_->gguf.architecture; }
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
  static std::string Where(const GgufTensor& tensor) {
    return absl::StrCat(*tensor.path, ": tensor ", Quoted(tensor.name));
  }

  const GgufTensor& Find(std::string_view name) const {
    const auto found = tensors_.find(View(name));
    TANDEM_CHECK(found != tensors_.end());
    return *found->second;
  }

  const std::unique_ptr<GgufFile> file_;
  const ModelFamily* family_ = nullptr;
  HashMap<std::string, const GgufTensor*> tensors_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Weights>> OpenGgufWeights(const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<GgufFile> file, GgufFile::Open(path));
  auto weights = std::make_unique<GgufWeights>(std::move(file));
  RETURN_IF_ERROR(weights->Index());
  return weights;
}

std::string GgufTensorName(absl::string_view name, const GgufForm& form) {
  std::string translated = Translated(name, form, /*to_gguf=*/true);
  TANDEM_CHECK(!translated.empty());
  return translated;
}

}  // namespace tandem
