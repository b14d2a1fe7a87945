// Fields that several kinds of components of a tokenizer.json share.
#ifndef TANDEM_TEXT_COMPONENT_FIELDS_H_
#define TANDEM_TEXT_COMPONENT_FIELDS_H_

#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "json/json_fields.h"
#include "text/added_tokens.h"
#include "text/regex.h"

namespace tandem {

// Calls `add` with each element of the list `key` of a Sequence, until one fails.
absl::Status ForEachPart(const JsonField& sequence, std::string_view key,
                         const std::function<absl::Status(const JsonField&)>& add);

// The error of a component whose "type" nothing here implements; `allowed` lists those there are.
absl::Status UnknownType(const JsonField& component, std::string_view allowed);

// Member "pattern", {"String": s} or {"Regex": r}.
absl::StatusOr<Regex> ReadPattern(const JsonField& component);

// A token's content and flags, of "added_tokens" of a tokenizer.json or "added_tokens_decoder" of a
// tokenizer_config.json; the id is left 0.
absl::StatusOr<AddedToken> ReadAddedToken(const JsonField& entry);

// Every match of `regex` in `text`, replaced by `content`.
absl::StatusOr<std::string> ReplaceAll(const Regex& regex, std::string_view content,
                                       const std::string& text);

// Spaces written as another character, perhaps with one in front of a text that has none.
struct Metaspace {
  enum class Prepend { kAlways, kFirst, kNever };

  std::string replacement;  // one character
  Prepend prepend = Prepend::kAlways;
};
absl::StatusOr<Metaspace> ReadMetaspace(const JsonField& component);

}  // namespace tandem

#endif  // TANDEM_TEXT_COMPONENT_FIELDS_H_
