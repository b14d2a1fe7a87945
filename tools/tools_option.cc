#include "tools/tools_option.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/mapped_file.h"
#include "base/status_macros.h"
#include "chat/tool_tags.h"
#include "json/json_text.h"
#include "tandem/field_error.h"

namespace tandem {

void ToolsOption::AddTo(OptionGroup* group) {
  group->Add("--tools", "F.json", &file,
             "Functions that the model may call: a file with OpenAI's list of tools, "
             "[{\"type\": \"function\", \"function\": {\"name\": ...}}]");
}

absl::StatusOr<JsonValue> ToolsOption::Read() const {
  if (!is_given()) return nullptr;
  const absl::StatusOr<std::string> text = ReadFile(file);
  if (!text.ok()) {
    return absl::Status(text.status().code(), absl::StrCat("--tools: ", text.status().message()));
  }
  ASSIGN_OR_RETURN(JsonValue tools, ParseJsonValue(*text, absl::StrCat("--tools ", file)));
  const auto functions = ToolFunctionsOf(tools);
  RETURN_IF_ERROR(WithOptionNames(functions.status()));
  if (!functions->empty()) return tools;
  return absl::InvalidArgumentError(absl::StrCat("--tools ", file, ": found ", Shown(tools),
                                                 ", allowed: a list of at least one function"));
}

absl::Status ToolsOption::WithOptionNames(const absl::Status& status) const {
  if (!is_given() || !absl::StartsWith(FieldOf(status), "tools")) return status;
  return absl::Status(status.code(), absl::StrCat("--tools ", file, ": ", status.message()));
}

}  // namespace tandem
