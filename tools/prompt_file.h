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

// Text or token ids, the same as in Request.
struct Prompt {
  std::string text;
  std::vector<TokenId> ids;
};

// Reads a line {"prompt": ...} or {"prompt_ids": [...]}; ignores other fields, which other programs
// may use. Errors begin with `where` and name the field.
absl::StatusOr<Prompt> ParsePromptLine(absl::string_view line, const std::string& where);

// Reads the prompts of a file with such lines, one at a time; skips blank lines. Move-only.
class PromptReader {
 public:
  explicit PromptReader(TextInput input) : input_(std::move(input)) {}

  // Returns the next prompt, or an error that names the file, the line and the field; nullopt after
  // the last prompt.
  std::optional<absl::StatusOr<Prompt>> Next();
  // Whether Next would return without blocking, although a program may still write the file.
  bool HasNext();
  const std::string& name() const { return input_.name(); }
  int line() const { return input_.line(); }  // the line of the last prompt

 private:
  TextInput input_;
  std::optional<absl::StatusOr<std::string>> ahead_{};  // a line that HasNext has read ahead
};

// Reads all prompts of a file. Returns the first error; INVALID_ARGUMENT for a file without
// prompts.
absl::StatusOr<std::vector<Prompt>> ReadPromptFile(const std::string& path);

}  // namespace tandem

#endif  // TANDEM_TOOLS_PROMPT_FILE_H_
