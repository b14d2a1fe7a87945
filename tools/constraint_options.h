#ifndef TANDEM_TOOLS_CONSTRAINT_OPTIONS_H_
#define TANDEM_TOOLS_CONSTRAINT_OPTIONS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "model/constraint/output_constraint.h"

namespace CLI {
class App;
}

namespace tandem {

// The options of what an output must be, as typed.
struct ConstraintFlags {
  std::string json_schema;
  std::string regex;
  std::string grammar;
  std::vector<std::string> choices;

  // Adds them to `app`, which must not outlive this object.
  void AddTo(CLI::App* app);
  // Reads the files that they name. Nothing if none is given. Errors are of the command line and of
  // files.
  absl::StatusOr<std::optional<OutputConstraint>> Read() const;
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_CONSTRAINT_OPTIONS_H_
