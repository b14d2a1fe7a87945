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

// The options of what an output must be, as typed.
struct ConstraintFlags {
  std::optional<std::string> json_schema;  // file, or the schema itself
  std::optional<std::string> regex;
  std::optional<std::string> grammar;  // file
  std::vector<std::string> choices;

  // Adds them to `app`, which must not outlive this object.
  void AddTo(CLI::App* app);
  // Reads the files that they name. Nothing if none is given. Errors name the option, and the file
  // where it has one.
  absl::StatusOr<std::optional<OutputConstraint>> Read() const;
  // `status`, naming the option in place of the request's constraint, if it names that.
  absl::Status WithRequestFieldNames(const absl::Status& status) const;

 private:
  // The one that is given, with its file: "--grammar sums.ebnf".
  std::string Name() const;
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_CONSTRAINT_OPTIONS_H_
