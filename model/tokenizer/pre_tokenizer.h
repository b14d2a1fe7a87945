#ifndef TANDEM_MODEL_TOKENIZER_PRE_TOKENIZER_H_
#define TANDEM_MODEL_TOKENIZER_PRE_TOKENIZER_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/tokenizer/json_fields.h"

namespace tandem {

// Cuts a normalised text into the pieces that merges do not cross: the pre_tokenizer of a
// tokenizer.json. Thread-safe.
class PreTokenizer {
 public:
  // From the field "pre_tokenizer", which may be null. INVALID_ARGUMENT naming a component that is
  // not implemented or a field that is wrong.
  static absl::StatusOr<PreTokenizer> FromJson(const JsonField& field);

  // `is_first`: the text's own beginning is that of the whole.
  absl::StatusOr<std::vector<std::string>> Split(std::string text, bool is_first) const;

 private:
  using Pieces = std::vector<std::string>;
  // Cuts one piece further. `is_first`: it begins the whole text.
  using Step = std::function<absl::Status(std::string piece, bool is_first, Pieces* pieces)>;
  absl::Status Add(const JsonField& field);
  absl::Status AddSplit(const JsonField& field);
  absl::Status AddByteLevel(const JsonField& field);
  absl::Status AddMetaspace(const JsonField& field);

  std::vector<Step> steps_;
};

}  // namespace tandem

#endif  // TANDEM_MODEL_TOKENIZER_PRE_TOKENIZER_H_
