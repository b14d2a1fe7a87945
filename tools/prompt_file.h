#ifndef TANDEM_TOOLS_PROMPT_FILE_H_
#define TANDEM_TOOLS_PROMPT_FILE_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tandem/types.h"
#include "tools/text_input.h"

namespace tandem {

// Text or token ids, as in Request.
struct Prompt {
  std::string text;
  std::vector<TokenId> ids;
};

// Reads a line {"prompt": ...} or {"prompt_ids": [...]}; other fields are for other programs.
// Errors begin with `where` and name the field.
absl::StatusOr<Prompt> ParsePromptLine(absl::string_view line, const std::string& where);

// The prompts of a file of such lines, one at a time; blank lines are skipped. Move-only.
class PromptReader {
 public:
  explicit PromptReader(TextInput input) : input_(std::move(input)) {}

  // The next prompt or what is wrong with its line, naming the file, the line and the field;
  // nothing behind the last.
  std::optional<absl::StatusOr<Prompt>> Next();
  // Whether Next would not wait for whoever writes the file.
  bool HasNext();
  const std::string& name() const { return input_.name(); }
  int line() const { return input_.line(); }  // that of the last prompt

 private:
  TextInput input_;
  std::optional<absl::StatusOr<std::string>> ahead_{};  // a line that was looked at already
};

// All prompts of a file. The first error that there is; INVALID_ARGUMENT if it has no prompts.
absl::StatusOr<std::vector<Prompt>> ReadPromptFile(const std::string& path);

}  // namespace tandem

#endif  // TANDEM_TOOLS_PROMPT_FILE_H_
