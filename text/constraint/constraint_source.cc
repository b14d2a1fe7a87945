#include "text/constraint/constraint_source.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/json/json_text.h"
#include "base/status_macros.h"
#include "base/utf8.h"
#include "text/constraint/grammar_text.h"
#include "text/constraint/schema_grammar.h"

namespace tandem {
namespace {

using Json = JsonValue;
using Kind = OutputConstraint::Kind;

absl::StatusOr<std::string> GrammarOfRegex(const std::string& pattern) {
  ASSIGN_OR_RETURN(const RegexNode node, ParseRegex(pattern, RegexMode::kWhole));
  return GrammarText().Write(RegexGrammar(node, TextForm::kPlain));
}

absl::StatusOr<std::string> ChoiceGrammar(const std::vector<std::string>& choices) {
  for (const std::string& choice : choices) {
    if (FindInvalidUtf8(choice) != std::string::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat("the choice ", Quoted(choice), " is not UTF-8"));
    }
  }
  return absl::StrCat("root ::= ",
                      absl::StrJoin(choices, " | ", [](std::string* out, const std::string& text) {
                        absl::StrAppend(out, GrammarString(text));
                      }));
}

// Converts the schemas and regular expressions in a structural tag to grammars.
absl::Status ConvertTag(bool is_one_of_several, Json* tag, std::vector<LengthRanges>* lengths) {
  if (!tag->is_structured()) return absl::OkStatus();
  if (tag->is_object() && tag->contains("json_schema")) {
    const bool is_strict = !tag->contains("strict") || (*tag)["strict"] != false;
    ASSIGN_OR_RETURN(
        std::string grammar,
        SchemaGrammar((*tag)["json_schema"],
                      {.is_strict = is_strict, .is_one_of_several = is_one_of_several}, lengths));
    *tag = {{"type", "grammar"}, {"grammar", std::move(grammar)}};
    return absl::OkStatus();
  }
  const auto type = tag->is_object() ? tag->find("type") : tag->end();
  if (tag->is_object() && type != tag->end() && *type == "regex" && tag->contains("pattern") &&
      (*tag)["pattern"].is_string()) {
    ASSIGN_OR_RETURN(std::string grammar, GrammarOfRegex((*tag)["pattern"].get<std::string>()));
    *tag = {{"type", "grammar"}, {"grammar", std::move(grammar)}};
    return absl::OkStatus();
  }
  if (tag->is_object() && type != tag->end() && *type == "or") is_one_of_several = true;
  for (Json& inner : *tag) RETURN_IF_ERROR(ConvertTag(is_one_of_several, &inner, lengths));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ConstraintSource> SourceOf(const OutputConstraint& constraint) {
  ConstraintSource source;
  switch (constraint.kind) {
    case Kind::kJsonObject: {
      ASSIGN_OR_RETURN(source.text,
                       SchemaGrammar({{"type", "object"}}, {.is_strict = false}, &source.lengths));
      return source;
    }
    case Kind::kJsonSchema: {
      ASSIGN_OR_RETURN(const Json schema, ParseJsonValue(constraint.text, "schema"));
      if (!schema.is_object()) {
        return absl::InvalidArgumentError(
            absl::StrCat("schema: found ", Shown(schema), ", allowed: an object"));
      }
      ASSIGN_OR_RETURN(source.text,
                       SchemaGrammar(schema, {.is_strict = constraint.is_strict}, &source.lengths));
      return source;
    }
    case Kind::kRegex: {
      ASSIGN_OR_RETURN(source.text, GrammarOfRegex(constraint.text));
      return source;
    }
    case Kind::kChoice: {
      ASSIGN_OR_RETURN(source.text, ChoiceGrammar(constraint.choices));
      return source;
    }
    case Kind::kGrammar:
      source.text = constraint.text;
      return source;
    case Kind::kStructuralTag: {
      ASSIGN_OR_RETURN(Json tag, ParseJsonValue(constraint.text, "structural_tag"));
      RETURN_IF_ERROR(ConvertTag(/*is_one_of_several=*/false, &tag, &source.lengths));
      source.is_tag = true;
      source.text = Json{{"type", "structural_tag"}, {"format", std::move(tag)}}.dump();
      return source;
    }
  }
  TANDEM_CHECK(false);
}

}  // namespace tandem
