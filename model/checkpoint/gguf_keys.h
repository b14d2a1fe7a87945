// Reads the keys of a GGUF file's architecture, with errors that say what is allowed.
#ifndef TANDEM_MODEL_CHECKPOINT_GGUF_KEYS_H_
#define TANDEM_MODEL_CHECKPOINT_GGUF_KEYS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/json/json_text.h"
#include "base/status_macros.h"
#include "model/checkpoint/gguf.h"
#include "model/checkpoint/model_families.h"

namespace tandem {

// The keys of a tokenizer, for the reader and the writer.
inline constexpr char kGgufTokenizerModel[] = "tokenizer.ggml.model";
inline constexpr char kGgufPre[] = "tokenizer.ggml.pre";
inline constexpr char kGgufTokens[] = "tokenizer.ggml.tokens";
inline constexpr char kGgufTokenKinds[] = "tokenizer.ggml.token_type";
inline constexpr char kGgufScores[] = "tokenizer.ggml.scores";
inline constexpr char kGgufMerges[] = "tokenizer.ggml.merges";
inline constexpr char kGgufAddBos[] = "tokenizer.ggml.add_bos_token";
inline constexpr char kGgufAddEos[] = "tokenizer.ggml.add_eos_token";
inline constexpr char kGgufAddSpace[] = "tokenizer.ggml.add_space_prefix";
inline constexpr char kGgufBos[] = "tokenizer.ggml.bos_token_id";
inline constexpr char kGgufUnknown[] = "tokenizer.ggml.unknown_token_id";
// The ids that end a text, a turn, a message.
inline constexpr const char* kGgufEnds[] = {
    "tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};

// The mask of a parallel draft (ModelConfig::mask_token), a key of this project's.
inline constexpr char kGgufDraftMask[] = "tandem.draft.mask_token_id";
// The mask of models of other kinds, too, so that it alone does not make a parallel draft.
inline constexpr char kGgufMask[] = "tokenizer.ggml.mask_token_id";

// Keys are named without the architecture: "llama.block_count" is "block_count". Errors name the
// file, the whole key, the value found and the values allowed.
class GgufKeys {
 public:
  // Both must outlive this object.
  GgufKeys(const GgufFile& file, const ModelFamily& family) : file_(file), family_(family) {}

  const GgufFile& file() const { return file_; }
  const ModelFamily& family() const { return family_; }
  const GgufForm& form() const { return family_.gguf; }
  std::string FullName(absl::string_view key) const {
    return absl::StrCat(form().architecture, ".", key);
  }
  bool Has(absl::string_view key) const { return file_.Has(FullName(key)); }
  bool IsArray(absl::string_view key) const { return file_.IsArray(FullName(key)); }

  absl::Status KeyNotAllowed(absl::string_view key, const absl::AlphaNum& found,
                             absl::string_view allowed) const {
    return NotAllowed(absl::StrCat(file_.path(), ": key ", Quoted(FullName(key))), found.Piece(),
                      allowed);
  }
  absl::Status WouldChange(absl::string_view key, double found, absl::string_view allowed) const {
    return KeyNotAllowed(
        key, found, absl::StrCat(allowed, " (not implemented, and it would change the result)"));
  }

  // The count of equal values in a list for each layer, which counts as one value, as in the
  // reference.
  uint64_t NumLayers() const {
    return file_.GetInteger(FullName("block_count"), 1, kMaxLayers).value_or(0);
  }

  // Reads an integer in [least, most]. An absent key gives `if_absent`, or an error without one.
  absl::StatusOr<int> Int(absl::string_view key, int least, int most,
                          std::optional<int> if_absent = std::nullopt) const {
    if (if_absent.has_value() && !Has(key)) return *if_absent;
    ASSIGN_OR_RETURN(const int64_t value,
                     file_.GetInteger(FullName(key), least, most, NumLayers()));
    return static_cast<int>(value);
  }
  absl::StatusOr<double> Number(absl::string_view key, double least, double most,
                                std::optional<double> if_absent = std::nullopt) const {
    if (if_absent.has_value() && !Has(key)) return *if_absent;
    ASSIGN_OR_RETURN(const double value, file_.GetNumber(FullName(key), NumLayers()));
    if (value >= least && value <= most) return value;
    return KeyNotAllowed(key, value, absl::StrCat("a number from ", least, " to ", most));
  }
  absl::StatusOr<bool> Bool(absl::string_view key) const { return file_.GetBool(FullName(key)); }
  absl::StatusOr<std::vector<bool>> Bools(absl::string_view key) const {
    return file_.GetBools(FullName(key));
  }
  absl::StatusOr<std::string_view> String(absl::string_view key, const char* if_absent) const {
    if (!Has(key)) return std::string_view(if_absent);
    return file_.GetString(FullName(key));
  }

  // Returns null if there is no such tensor.
  const GgufTensor* Tensor(absl::string_view name) const {
    for (const GgufTensor& tensor : file_.tensors()) {
      if (tensor.name == name) return &tensor;
    }
    return nullptr;
  }
  absl::Status NoTensor(absl::string_view name) const {
    return absl::NotFoundError(
        absl::StrCat(file_.path(), ": tensor ", Quoted(name), ": not found"));
  }
  absl::Status WrongTensor(const GgufTensor& tensor, absl::string_view found,
                           absl::string_view allowed) const {
    return NotAllowed(absl::StrCat(*tensor.path, ": tensor ", Quoted(tensor.name)), found, allowed);
  }
  absl::Status UnexpectedTensor(const GgufTensor& tensor) const {
    return WrongTensor(tensor, "a tensor",
                       absl::StrCat("no such tensor in this ", form().architecture, " model"));
  }

 private:
  const GgufFile& file_;
  const ModelFamily& family_;
};

}  // namespace tandem

#endif  // TANDEM_MODEL_CHECKPOINT_GGUF_KEYS_H_
