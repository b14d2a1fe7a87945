#include "tools/request_options.h"

#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/json/json_text.h"
#include "base/mapped_file.h"
#include "base/status_macros.h"
#include "tandem/field_error.h"
#include "text/chat/tool_tags.h"
#include "text/constraint/constraint_source.h"

namespace tandem {
namespace {

// Whether `text` is a schema rather than the name of a file: it begins with a brace.
bool IsSchema(absl::string_view text) {
  return absl::StartsWith(absl::StripLeadingAsciiWhitespace(text), "{");
}

}  // namespace

void SamplingFlags::AddTo(CLI::App* app) {
  OptionGroup group(app, "Sampling");
  VisitSamplingParams([&](const Parameter& parameter, auto member, const Limits& limits) {
    group.Add(parameter.option, parameter.value, &(params.*member), parameter.help, limits);
  });
  group.Add("--logit-bias", "ID:BIAS", &logit_bias,
            "Adds BIAS to the logit of token ID; repeatable");
  group.Add("--seed", "N", &seed,
            "Makes the output depend only on the model, the prompt and the parameters", {.low = 0});
}

absl::Status SamplingFlags::Check() {
  params.logit_bias.clear();
  for (const std::string& entry : logit_bias) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(entry, absl::MaxSplits(':', 1));
    TokenId id = 0;
    float bias = 0.0f;
    if (!absl::SimpleAtoi(parts.first, &id) || !absl::SimpleAtof(parts.second, &bias)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--logit-bias: must be ID:BIAS, got \"", entry, "\""));
    }
    params.logit_bias.emplace_back(id, bias);
  }
  return params.Validate(std::numeric_limits<int>::max());
}

void ConstraintFlags::AddTo(CLI::App* app) {
  OptionGroup group(app, "Constraints (at most one)");
  group.Add("--json-schema", "F|{...}", &json_schema,
            "The output is JSON that matches this schema: a file, or the schema itself, {...}");
  group.Add("--regex", "R", &regex, "The whole output matches this regular expression");
  group.Add("--choice", "A,B", &choices, "The output is one of these texts", ',');
  group.Add("--choice-law", "NAME", &law_name,
            "With --choice, or a schema that is an enum of strings. masked: token by token, among "
            "those that may come next; conditional: by the model's probabilities of whole texts, "
            "which the JSON then has",
            OneOf{{"masked", "conditional"}});
  group.Add("--grammar", "F", &grammar, "The output matches the rule root of this EBNF grammar");
  AllowOneOf(app, {"--json-schema", "--regex", "--choice", "--grammar"});
}

std::string ConstraintFlags::Name() const {
  if (json_schema.has_value()) {
    return IsSchema(*json_schema) ? "--json-schema" : absl::StrCat("--json-schema ", *json_schema);
  }
  if (grammar.has_value()) return absl::StrCat("--grammar ", *grammar);
  if (regex.has_value()) return "--regex";
  return choices.empty() ? "" : "--choice";
}

absl::StatusOr<std::optional<OutputConstraint>> ConstraintFlags::Read() const {
  const bool is_choice = json_schema.has_value() || !choices.empty();
  if (law() == ChoiceLaw::kConditional && !is_choice) {
    return absl::InvalidArgumentError(
        "--choice-law: conditional needs --choice, or --json-schema with an enum of strings");
  }
  if (Name().empty()) return std::nullopt;
  OutputConstraint constraint;
  absl::StatusOr<std::string> text = regex.value_or("");
  if (json_schema.has_value()) {
    constraint.kind = OutputConstraint::Kind::kJsonSchema;
    text = IsSchema(*json_schema) ? *json_schema : ReadFile(*json_schema);
  } else if (grammar.has_value()) {
    constraint.kind = OutputConstraint::Kind::kGrammar;
    text = ReadFile(*grammar);
  } else if (regex.has_value()) {
    constraint.kind = OutputConstraint::Kind::kRegex;
  } else {
    constraint.kind = OutputConstraint::Kind::kChoice;
    constraint.choices = choices;
    RETURN_IF_ERROR(Named(Name(), SourceOf(constraint).status()));
    return constraint;
  }
  RETURN_IF_ERROR(Named(grammar.has_value() ? "--grammar" : "--json-schema", text.status()));
  constraint.text = *std::move(text);
  if (!constraint.text.empty()) {
    RETURN_IF_ERROR(Named(Name(), SourceOf(constraint).status()));
    return constraint;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      Name(),
      ": found nothing, allowed: ", regex.has_value() ? "an expression" : "a file with some text"));
}

absl::Status ConstraintFlags::WithOptionNames(const absl::Status& status) const {
  const std::string name = Name();
  absl::string_view what = status.message();
  if (absl::ConsumePrefix(&what, "choice_law: ")) {
    return Named("--choice-law", absl::Status(status.code(), what));
  }
  return !name.empty() && absl::ConsumePrefix(&what, "constraint: ")
             ? Named(name, absl::Status(status.code(), what))
             : status;
}

void ToolsOption::AddTo(OptionGroup* group) {
  group->Add("--tools", "F.json", &file,
             "Functions that the model may call: a file with OpenAI's list of tools, "
             "[{\"type\": \"function\", \"function\": {\"name\": ...}}]");
}

absl::StatusOr<JsonValue> ToolsOption::Read() const {
  if (!is_given()) return nullptr;
  const absl::StatusOr<std::string> text = ReadFile(file);
  RETURN_IF_ERROR(Named("--tools", text.status()));
  ASSIGN_OR_RETURN(JsonValue tools, ParseJsonValue(*text, absl::StrCat("--tools ", file)));
  const auto functions = ToolFunctionsOf(tools);
  RETURN_IF_ERROR(WithOptionNames(functions.status()));
  if (!functions->empty()) return tools;
  return absl::InvalidArgumentError(absl::StrCat("--tools ", file, ": found ", Shown(tools),
                                                 ", allowed: a list of at least one function"));
}

absl::Status ToolsOption::WithOptionNames(const absl::Status& status) const {
  absl::string_view what = status.message();
  const bool is_of_tools = absl::StartsWith(FieldOf(status), "tools") ||
                           absl::ConsumePrefix(&what, "constraint: ");  // of the calls
  if (!is_given() || !is_of_tools) return status;
  return Named(absl::StrCat("--tools ", file), absl::Status(status.code(), what));
}

void ThinkingOption::AddTo(OptionGroup* group) {
  group->Add("--max-thinking-tokens", "N", &max_tokens,
             "Ends the reasoning before the answer after N tokens, at the next line end; 0 ends it "
             "at once",
             {.low = 0});
}

absl::Status ThinkingOption::WithOptionNames(const absl::Status& status) {
  const bool is_of_limit = FieldOf(status) == "max_thinking_tokens";
  return is_of_limit ? WithField(status, "--max-thinking-tokens") : status;
}

}  // namespace tandem
