#ifndef TANDEM_TEXT_NORMALIZER_H_
#define TANDEM_TEXT_NORMALIZER_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/json/json_fields.h"

namespace tandem {

// Changes a text before it is cut: the normalizer of a tokenizer.json. Thread-safe.
class Normalizer {
 public:
  // Creates a normalizer from the field "normalizer", which may be null. INVALID_ARGUMENT, naming a
  // component that is not implemented or a field that is wrong.
  static absl::StatusOr<Normalizer> FromJson(const JsonField& field);

  // The Unicode normalisation form NFC.
  static Normalizer Nfc();
  // SentencePiece's normalisation: spaces become U+2581, and `adds_prefix` puts one before a text.
  // `trims` first removes spaces at both ends and reduces runs of them to one.
  static Normalizer SentencePiece(bool adds_prefix, bool trims);

  absl::StatusOr<std::string> Apply(std::string text) const;

 private:
  using Step = std::function<absl::StatusOr<std::string>(std::string)>;
  absl::Status Add(const JsonField& field);

  std::vector<Step> steps_;
};

}  // namespace tandem

#endif  // TANDEM_TEXT_NORMALIZER_H_
