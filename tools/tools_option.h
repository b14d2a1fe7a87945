#ifndef TANDEM_TOOLS_TOOLS_OPTION_H_
#define TANDEM_TOOLS_TOOLS_OPTION_H_

#include <string>

#include "absl/status/statusor.h"
#include "tandem/json_value.h"
#include "tools/option_group.h"

namespace tandem {

// --tools: the functions that the model may call.
struct ToolsOption {
  std::string file;

  // Adds the option to `group`, whose command must not outlive this object.
  void AddTo(OptionGroup* group);
  bool is_given() const { return !file.empty(); }
  // Returns the file's list in the form of ChatInput::tools; null without the option. Errors name
  // the option, the file, the member, the value found and the values allowed.
  absl::StatusOr<JsonValue> Read() const;
  // Returns `status` with the option and its file in front, if it is about a member of `tools`.
  absl::Status WithOptionNames(const absl::Status& status) const;
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_TOOLS_OPTION_H_
