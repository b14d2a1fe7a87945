#include "text/component_fields.h"

#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"

namespace tandem {

absl::Status ForEachPart(const JsonField& sequence, std::string_view key,
                         const std::function<absl::Status(const JsonField&)>& add) {
  ASSIGN_OR_RETURN(const JsonField parts, sequence.Member(key));
  RETURN_IF_ERROR(parts.CheckArray());
  for (size_t i = 0; i < parts.value().size(); ++i) {
    ASSIGN_OR_RETURN(const JsonField part, parts.Element(i));
    RETURN_IF_ERROR(add(part));
  }
  return absl::OkStatus();
}

absl::Status UnknownType(const JsonField& component, std::string_view allowed) {
  ASSIGN_OR_RETURN(const JsonField type, component.Member("type"));
  return type.Error(absl::StrCat("is not implemented, allowed: ",
                                 absl::string_view(allowed.data(), allowed.size())));
}

absl::StatusOr<Regex> ReadPattern(const JsonField& component) {
  ASSIGN_OR_RETURN(const JsonField pattern, component.Member("pattern"));
  ASSIGN_OR_RETURN(const JsonField literal, pattern.Member("String"));
  ASSIGN_OR_RETURN(const JsonField expression, pattern.Member("Regex"));
  if (literal.is_null() == expression.is_null()) {
    return pattern.Error("is not one of {\"String\": ...} and {\"Regex\": ...}");
  }
  const JsonField& source = literal.is_null() ? expression : literal;
  ASSIGN_OR_RETURN(const std::string text, source.String());
  absl::StatusOr<Regex> regex =
      literal.is_null() ? Regex::Compile(text) : Regex::CompileLiteral(text);
  if (!regex.ok()) return source.Error(std::string(regex.status().message()));
  return regex;
}

absl::StatusOr<AddedToken> ReadAddedToken(const JsonField& entry) {
  AddedToken token;
  ASSIGN_OR_RETURN(const JsonField content, entry.Member("content"));
  ASSIGN_OR_RETURN(token.content, content.String());
  if (token.content.empty()) return content.Error("is empty");
  token.written = token.content;
  const std::pair<const char*, bool*> flags[] = {{"special", &token.special},
                                                 {"single_word", &token.single_word},
                                                 {"lstrip", &token.left_strip},
                                                 {"rstrip", &token.right_strip}};
  for (const auto& [key, flag] : flags) {
    ASSIGN_OR_RETURN(const JsonField member, entry.Member(key));
    ASSIGN_OR_RETURN(*flag, member.Bool(false));
  }
  ASSIGN_OR_RETURN(const JsonField normalized, entry.Member("normalized"));
  ASSIGN_OR_RETURN(token.normalized, normalized.Bool(!token.special));
  return token;
}

absl::StatusOr<std::string> ReplaceAll(const Regex& regex, std::string_view content,
                                       const std::string& text) {
  ASSIGN_OR_RETURN(const std::vector<Regex::Match> matches, regex.FindAll(text));
  std::string result;
  size_t done = 0;
  for (const Regex::Match& match : matches) {
    result.append(text, done, match.begin - done).append(content);
    done = match.end;
  }
  return result.append(text, done);
}

absl::StatusOr<Metaspace> ReadMetaspace(const JsonField& component) {
  Metaspace metaspace;
  ASSIGN_OR_RETURN(const JsonField replacement, component.Member("replacement"));
  ASSIGN_OR_RETURN(metaspace.replacement, replacement.Character());
  ASSIGN_OR_RETURN(const JsonField scheme_field, component.Member("prepend_scheme"));
  ASSIGN_OR_RETURN(const JsonField old_field, component.Member("add_prefix_space"));
  ASSIGN_OR_RETURN(const bool old_prefix, old_field.Bool(true));
  if (scheme_field.is_null()) {
    // Older files have only add_prefix_space.
    metaspace.prepend = old_prefix ? Metaspace::Prepend::kAlways : Metaspace::Prepend::kNever;
    return metaspace;
  }
  constexpr std::array kSchemes = {"always", "first", "never"};  // by Prepend
  ASSIGN_OR_RETURN(const std::string scheme, scheme_field.String());
  const auto* const found = absl::c_find(kSchemes, scheme);
  if (found == kSchemes.end()) return scheme_field.Error("is not one of always, first, never");
  metaspace.prepend = static_cast<Metaspace::Prepend>(found - kSchemes.begin());
  if (!old_prefix && metaspace.prepend != Metaspace::Prepend::kNever) {
    return old_field.Error("does not match prepend_scheme");
  }
  return metaspace;
}

}  // namespace tandem
