#ifndef TANDEM_TOOLS_CONSTRAINT_OPTIONS_H_
#define TANDEM_TOOLS_CONSTRAINT_OPTIONS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tandem/output_constraint.h"

namespace CLI {
class App;
}

namespace tandem {

// The options that constrain the output, as typed.
struct ConstraintFlags {
  std::optional<std::string> json_schema;  // file, or the schema itself
  std::optional<std::string> regex;
  std::optional<std::string> grammar;  // file
  std::vector<std::string> choices;

  // Adds the options to `app`, which must not outlive this object.
  void AddTo(CLI::App* app);
  // Returns the constraint, reading its file if it has one; nullopt if no option is given. Errors
  // name the option and the file.
  absl::StatusOr<std::optional<OutputConstraint>> Read() const;
  // Returns `status` with a leading "constraint" field replaced by the option's name.
  absl::Status WithOptionNames(const absl::Status& status) const;

 private:
  // The option that is given, with its file: "--grammar sums.ebnf".
  std::string Name() const;
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_CONSTRAINT_OPTIONS_H_
