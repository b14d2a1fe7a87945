#include "text/constraint/choice_texts.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/json/json_text.h"
#include "base/named_values.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "tandem/field_error.h"
#include "tandem/json_value.h"

namespace tandem {
namespace {

using Json = JsonValue;
using Kind = OutputConstraint::Kind;

constexpr NamedValues<ChoiceLaw, 2> kNames = {
    {{ChoiceLaw::kMasked, "masked"}, {ChoiceLaw::kConditional, "conditional"}}};

absl::Status NotOfTexts(absl::string_view found) {
  return FieldError("choice_law",
                    absl::StrCat("found \"conditional\" with ", found,
                                 ", allowed with it: a choice, or a schema that is only an enum of "
                                 "strings"));
}

// Whether the keyword allows every string.
bool AllowsAllStrings(const std::string& keyword, const Json& value) {
  if (keyword == "type") return value == "string";
  return absl::c_linear_search(
      std::initializer_list<absl::string_view>{"title", "description", "$schema", "$id", "$comment",
                                               "default", "examples", "deprecated"},
      keyword);
}

absl::StatusOr<std::vector<std::string>> TextsOfEnum(const std::string& text) {
  ASSIGN_OR_RETURN(const Json schema, ParseJsonValue(text, "constraint"));
  const auto values = schema.is_object() ? schema.find("enum") : schema.end();
  if (values == schema.end() || !values->is_array()) return NotOfTexts("another schema");
  for (const auto& [keyword, value] : schema.items()) {
    if (keyword != "enum" && !AllowsAllStrings(keyword, value)) {
      return NotOfTexts(absl::StrCat("a schema that has ", Quoted(keyword)));
    }
  }
  std::vector<std::string> texts;
  for (const Json& value : *values) {
    if (!value.is_string()) return NotOfTexts(absl::StrCat("an enum that has ", Shown(value)));
    texts.push_back(value.dump());
  }
  return texts;
}

// The text that tokens add to a text that has others before them.
std::string SpelledBy(absl::Span<const TokenId> tokens, const Tokenizer& tokenizer) {
  std::string text;
  for (const TokenId id : tokens) {
    const std::optional<Tokenizer::TokenText> token = tokenizer.TextOf(id, /*is_first=*/false);
    if (token.has_value()) absl::StrAppend(&text, View(token->bytes));
  }
  return text;
}

// Some tokenizers put a space in front of a text. Nothing is put in front of a part within the
// text, so the text is encoded after a line break, with which no token merges there.
absl::StatusOr<std::vector<TokenId>> CanonicalTokens(const std::string& text,
                                                     const Tokenizer& tokenizer) {
  ASSIGN_OR_RETURN(std::vector<TokenId> tokens, tokenizer.Encode(text, SpecialTokens::kPlain));
  if (SpelledBy(tokens, tokenizer) == text) return tokens;
  const auto before = tokenizer.Encode("\n", SpecialTokens::kPlain);
  auto all = tokenizer.Encode("\n" + text, SpecialTokens::kPlain);
  if (before.ok() && all.ok() && before->size() <= all->size() &&
      std::equal(before->begin(), before->end(), all->begin())) {
    tokens.assign(all->begin() + before->size(), all->end());
    if (SpelledBy(tokens, tokenizer) == text) return tokens;
  }
  return FieldError("constraint", absl::StrCat("the choice ", Quoted(text),
                                               " is not a text that the model can write: its "
                                               "tokens spell ",
                                               Quoted(SpelledBy(tokens, tokenizer))));
}

}  // namespace

std::string_view NameOf(ChoiceLaw law) { return NameIn(kNames, law); }

absl::StatusOr<ChoiceLaw> ParseChoiceLaw(std::string_view name) {
  return ValueOf(kNames, "choice_law", name);
}

absl::StatusOr<std::vector<ChoiceText>> ChoiceTextsOf(const OutputConstraint& constraint,
                                                      const Tokenizer& tokenizer) {
  std::vector<std::string> texts = constraint.choices;
  if (constraint.kind == Kind::kJsonSchema) {
    ASSIGN_OR_RETURN(texts, TextsOfEnum(constraint.text));
  } else if (constraint.kind != Kind::kChoice) {
    return NotOfTexts("another constraint");
  }
  if (texts.empty() || texts.size() > size_t{kMaxScoredChoices}) {
    return FieldError("constraint",
                      absl::StrCat("found ", texts.size(),
                                   " choices, allowed with choice_law \"conditional\": 1 to ",
                                   kMaxScoredChoices));
  }
  std::vector<ChoiceText> choices;
  std::map<std::vector<TokenId>, size_t> known;
  for (std::string& text : texts) {
    absl::StatusOr<std::vector<TokenId>> tokens = CanonicalTokens(text, tokenizer);
    if (!tokens.ok()) return WithField(tokens.status(), "constraint");
    const auto [it, is_new] = known.emplace(*tokens, choices.size());
    if (!is_new) {
      return FieldError("constraint", absl::StrCat("the choices ", it->second, " and ",
                                                   choices.size(), " are both ", Quoted(text)));
    }
    choices.push_back({.text = std::move(text), .tokens = *std::move(tokens)});
  }
  return choices;
}

}  // namespace tandem
