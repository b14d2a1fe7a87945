#include "model/checkpoint/gguf_weights.h"

#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/check.h"
#include "base/json/json_text.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "model/checkpoint/gguf.h"
#include "model/checkpoint/gguf_config.h"
#include "model/checkpoint/model_families.h"
#include "model/checkpoint/stored_weights.h"

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
// The part of a layer tensor's name between the layer's number and ".weight" or ".bias".
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
// The tensors of draft heads.
constexpr NamePair kHeadTensorNames[] = {{"fc.weight", "fc.weight"},
                                         {kStatesNorm, kStatesNorm},
                                         {kDraftIds, kDraftIds},
                                         {"embed_norm.weight", "embed_norm.weight"},
                                         {"hidden_norm.weight", "hidden_norm.weight"}};
constexpr NamePair kHeadLayerNames[] = {{"attn_norm_2", kStateNorm}};
// The tensors of families with experts: the router, and each expert's projections. These are
// stacked, [experts, rows, columns], or, in files of 2024, tensors of their own: "ffn_gate.7".
constexpr NamePair kRouterNames[] = {{"ffn_gate_inp", "mlp.gate"}};
constexpr NamePair kStackNames[] = {
    {"ffn_gate_exps", "gate_proj"}, {"ffn_up_exps", "up_proj"}, {"ffn_down_exps", "down_proj"}};
constexpr NamePair kExpertNames[] = {
    {"ffn_gate", "gate_proj"}, {kUp, "up_proj"}, {"ffn_down", "down_proj"}};
constexpr char kMlpExperts[] = "mlp.experts.";
constexpr const char* kConfigurationTensors[] = {kGgufDivisors, kGgufLongDivisors,
                                                 kGgufShortDivisors};
constexpr NamePair kJoinedNames[] = {{kUp, "mlp.gate_up_proj"}};

// Returns the other name of the pair that has `text`; empty if no pair has it.
std::string Translated(absl::string_view text, absl::Span<const NamePair> pairs, bool to_gguf) {
  for (const NamePair& pair : pairs) {
    if (text == (to_gguf ? pair.name : pair.gguf)) {
      return std::string(to_gguf ? pair.gguf : pair.name);
    }
  }
  return "";
}

bool IsNumber(absl::string_view text) {
  return !text.empty() && absl::c_all_of(text, absl::ascii_isdigit);
}

// The same for a part of a layer with experts: one expert, "mlp.experts.7.gate_proj", or a stack of
// all, "mlp.experts.gate_proj".
std::string TranslatedExpert(absl::string_view part, bool to_gguf) {
  if (std::string router = Translated(part, kRouterNames, to_gguf); !router.empty()) return router;
  if (to_gguf) {
    if (!absl::ConsumePrefix(&part, kMlpExperts)) return "";
    const size_t dot = part.find('.');
    if (dot == part.npos) return Translated(part, kStackNames, to_gguf);
    const std::string place = Translated(part.substr(dot + 1), kExpertNames, to_gguf);
    const absl::string_view number = part.substr(0, dot);
    return place.empty() || !IsNumber(number) ? "" : absl::StrCat(place, ".", number);
  }
  if (const std::string place = Translated(part, kStackNames, to_gguf); !place.empty()) {
    return absl::StrCat(kMlpExperts, place);
  }
  const size_t dot = part.find('.');
  if (dot == part.npos || !IsNumber(part.substr(dot + 1))) return "";
  const std::string place = Translated(part.substr(0, dot), kExpertNames, to_gguf);
  return place.empty() ? "" : absl::StrCat(kMlpExperts, part.substr(dot + 1), ".", place);
}

// Translates a tensor's name to that of a GGUF model of this family, or back to the names that
// gguf_weights.h describes; a stack of experts is "mlp.experts.gate_proj". Empty if the family does
// not have the tensor.
std::string Translated(absl::string_view name, const ModelFamily& family, bool to_gguf) {
  if (std::string whole = Translated(name, kTensorNames, to_gguf); !whole.empty()) return whole;
  const bool is_draft_head = family.form.is_draft_head();
  if (is_draft_head) {
    if (std::string whole = Translated(name, kHeadTensorNames, to_gguf); !whole.empty()) {
      return whole;
    }
  }
  const absl::string_view prefix = to_gguf ? kLayer : kGgufLayer;
  const size_t last_dot = name.rfind('.');
  const size_t number_end = name.find('.', prefix.size());
  if (!absl::StartsWith(name, prefix) || number_end == name.npos || number_end >= last_dot) {
    return "";
  }
  const absl::string_view kind = name.substr(last_dot);
  const absl::string_view part = name.substr(number_end + 1, last_dot - number_end - 1);
  std::string place;
  if (family.gguf.joins_gate_and_up) place = Translated(part, kJoinedNames, to_gguf);
  if (place.empty() && is_draft_head) place = Translated(part, kHeadLayerNames, to_gguf);
  if (place.empty()) place = Translated(part, kLayerNames, to_gguf);
  if (place.empty() && family.expert_rule != ExpertRule::kNone && kind == ".weight") {
    place = TranslatedExpert(part, to_gguf);
  }
  if (place.empty() || (kind != ".weight" && kind != ".bias")) return "";
  return absl::StrCat(to_gguf ? kGgufLayer : kLayer,
                      name.substr(prefix.size(), number_end - prefix.size()), ".", place, kind);
}

// The stack that an expert's tensor may be in, and the number of the expert; empty for a tensor
// that does not belong to an expert.
struct InStack {
  std::string name;
  int64_t expert = -1;
};
InStack StackOf(absl::string_view name) {
  const size_t experts = name.find(kMlpExperts);
  if (experts == name.npos) return {};
  const size_t number = experts + std::size(kMlpExperts) - 1;
  const size_t dot = name.find('.', number);
  InStack found;
  if (dot == name.npos || !absl::SimpleAtoi(name.substr(number, dot - number), &found.expert)) {
    return {};
  }
  found.name = absl::StrCat(name.substr(0, number), name.substr(dot + 1));
  return found;
}

class GgufWeights final : public StoredWeights {
 public:
  explicit GgufWeights(std::unique_ptr<GgufFile> file)
      : StoredWeights({.floats = "float32, float16, bfloat16", .integers = "int64"}),
        file_(std::move(file)) {}

  absl::Status Index() {
    ASSIGN_OR_RETURN(family_, GgufFamilyOf(*file_));
    ASSIGN_OR_RETURN(num_experts_, GgufExpertCount(*file_, *family_));
    for (const GgufTensor& tensor : file_->tensors()) {
      if (absl::c_linear_search(kConfigurationTensors, tensor.name)) continue;
      const std::string name = Translated(tensor.name, *family_, /*to_gguf=*/false);
      if (name.empty()) {
        return NotAllowed(WhereIs(tensor), "a tensor",
                          absl::StrCat("the tensors of ", family_->gguf.architecture));
      }
      const bool is_expert = absl::StrContains(name, kMlpExperts);
      if (is_expert && StackOf(name).name.empty()) {
        RETURN_IF_ERROR(AddStack(name, tensor));
      } else {
        has_single_experts_ |= is_expert;
        RETURN_IF_ERROR(AddTensor(name, {*tensor.path, EntryOf(tensor)}));
      }
    }
    return absl::OkStatus();
  }

  std::vector<std::string> files() const override { return file_->files(); }
  std::string gguf_architecture() const override { return family_->gguf.architecture; }

 protected:
  absl::Status NotFound(std::string_view name, absl::Span<const int64_t> shape) const override {
    const InStack in_stack = StackOf(View(name));
    const bool is_stack = !in_stack.name.empty() && !has_single_experts_;
    if (is_stack && in_stack.expert >= num_experts_) {
      return NotAllowed(
          absl::StrCat(file_->path(), ": tensor ",
                       Quoted(Translated(in_stack.name, *family_, /*to_gguf=*/true))),
          absl::StrCat(num_experts_, " experts"),
          absl::StrCat("more than ", in_stack.expert, ", as the configuration next to it says"));
    }
    const std::string stored =
        Translated(is_stack ? in_stack.name : View(name), *family_, /*to_gguf=*/true);
    std::vector<int64_t> whole(shape.begin(), shape.end());
    if (is_stack) whole.insert(whole.begin(), num_experts_);
    return absl::NotFoundError(absl::StrCat(file_->path(), ": tensor ", Quoted(stored),
                                            ": not found, wanted with shape ", ShapeText(whole)));
  }

 private:
  static SafetensorsEntry EntryOf(const GgufTensor& tensor) {
    SafetensorsEntry entry{.name = tensor.name,
                           .dtype_name = tensor.is_int64 ? "int64" : NameOf(tensor.dtype),
                           .dtype = std::nullopt,
                           .shape = tensor.shape,
                           .num_elements = 1,
                           .bytes = tensor.bytes};
    if (!tensor.is_int64) entry.dtype = tensor.dtype;
    for (const int64_t size : tensor.shape) entry.num_elements *= size;
    return entry;
  }

  // Adds each expert's part of a stack as a tensor of its own.
  absl::Status AddStack(const std::string& name, const GgufTensor& tensor) {
    if (tensor.shape.size() != 3 || tensor.shape[0] != num_experts_) {
      return NotAllowed(
          absl::StrCat(WhereIs(tensor), ": shape"), ShapeText(tensor.shape),
          absl::StrCat("[", num_experts_, ", rows, columns], of ", num_experts_, " experts"));
    }
    const size_t number = name.find(kMlpExperts) + std::size(kMlpExperts) - 1;
    SafetensorsEntry part = EntryOf(tensor);
    part.shape.erase(part.shape.begin());
    part.num_elements /= num_experts_;
    const size_t size = tensor.bytes.size() / num_experts_;
    for (int expert = 0; expert < num_experts_; ++expert) {
      part.bytes = tensor.bytes.subspan(expert * size, size);
      RETURN_IF_ERROR(
          AddTensor(absl::StrCat(name.substr(0, number), expert, ".", name.substr(number)),
                    {*tensor.path, part, num_experts_}));
    }
    return absl::OkStatus();
  }

  static std::string WhereIs(const GgufTensor& tensor) {
    return absl::StrCat(*tensor.path, ": tensor ", Quoted(tensor.name));
  }

  const std::unique_ptr<GgufFile> file_;
  const ModelFamily* family_ = nullptr;
  int num_experts_ = 0;
  bool has_single_experts_ = false;  // whether tensors of single experts exist
};

}  // namespace

absl::StatusOr<std::unique_ptr<Weights>> OpenGgufWeights(const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<GgufFile> file, GgufFile::Open(path));
  return WeightsOf(std::move(file));
}

absl::StatusOr<std::unique_ptr<Weights>> WeightsOf(std::unique_ptr<GgufFile> file) {
  auto weights = std::make_unique<GgufWeights>(std::move(file));
  RETURN_IF_ERROR(weights->Index());
  return weights;
}

std::string GgufTensorName(absl::string_view name, const ModelFamily& family) {
  std::string translated = Translated(name, family, /*to_gguf=*/true);
  TANDEM_CHECK(!translated.empty());
  return translated;
}

}  // namespace tandem
