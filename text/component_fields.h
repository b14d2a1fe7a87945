// Readers of fields that several kinds of components of a tokenizer.json share.
#ifndef TANDEM_TEXT_COMPONENT_FIELDS_H_
#define TANDEM_TEXT_COMPONENT_FIELDS_H_

#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/json/json_fields.h"
#include "text/added_tokens.h"
#include "text/regex.h"

namespace tandem {

// Calls `add` with each element of the list `key` of a Sequence, until a call fails.
absl::Status ForEachPart(const JsonField& sequence, std::string_view key,
                         const std::function<absl::Status(const JsonField&)>& add);

// Returns the error for a component whose "type" is not implemented; `allowed` lists the
// implemented types.
absl::Status UnknownType(const JsonField& component, std::string_view allowed);

// Reads the member "pattern", {"String": s} or {"Regex": r}.
absl::StatusOr<Regex> ReadPattern(const JsonField& component);

// Reads a token's content and flags from "added_tokens" of a tokenizer.json or
// "added_tokens_decoder" of a tokenizer_config.json; the id stays 0.
absl::StatusOr<AddedToken> ReadAddedToken(const JsonField& entry);

// Returns `text` with every match of `regex` replaced by `content`.
absl::StatusOr<std::string> ReplaceAll(const Regex& regex, std::string_view content,
                                       const std::string& text);

// Spaces are written as another character, and one may be put before a text that does not begin
// with one.
struct Metaspace {
  enum class Prepend { kAlways, kFirst, kNever };

  std::string replacement;  // one character
  Prepend prepend = Prepend::kAlways;
};
absl::StatusOr<Metaspace> ReadMetaspace(const JsonField& component);

}  // namespace tandem

#endif  // TANDEM_TEXT_COMPONENT_FIELDS_H_
