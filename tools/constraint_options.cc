#include "tools/constraint_options.h"

#include "CLI/CLI.hpp"
#include "base/mapped_file.h"
#include "base/status_macros.h"

namespace tandem {

void ConstraintFlags::AddTo(CLI::App* app) {
  const std::string group = "Constraints (one of them)";
  app->add_option("--json-schema", json_schema, "The output is JSON of this schema")
      ->type_name("F")
      ->group(group);
  app->add_option("--regex", regex, "The output matches this expression, as a whole")
      ->type_name("R")
      ->group(group);
  app->add_option("--choice", choices, "The output is one of these")
      ->type_name("A,B")
      ->delimiter(',')
      ->group(group);
  app->add_option("--grammar", grammar, "The output is what the rule root of this EBNF derives")
      ->type_name("F")
      ->group(group);
}

absl::StatusOr<std::optional<OutputConstraint>> ConstraintFlags::Read() const {
  const int num_given = !json_schema.empty() + !regex.empty() + !grammar.empty() + !choices.empty();
  if (num_given > 1) {
    return absl::InvalidArgumentError("give one of --json-schema, --regex, --choice and --grammar");
  }
  if (num_given == 0) return std::nullopt;
  OutputConstraint constraint;
  if (!json_schema.empty()) {
    constraint.kind = OutputConstraint::Kind::kJsonSchema;
    ASSIGN_OR_RETURN(constraint.text, ReadFile(json_schema));
  } else if (!grammar.empty()) {
    constraint.kind = OutputConstraint::Kind::kGrammar;
    ASSIGN_OR_RETURN(constraint.text, ReadFile(grammar));
  } else if (!regex.empty()) {
    constraint.kind = OutputConstraint::Kind::kRegex;
    constraint.text = regex;
  } else {
    constraint.kind = OutputConstraint::Kind::kChoice;
    constraint.choices = choices;
  }
  return constraint;
}

}  // namespace tandem
