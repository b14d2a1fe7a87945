#ifndef TANDEM_TOOLS_PROMPT_FILE_H_
#define TANDEM_TOOLS_PROMPT_FILE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/types.h"

namespace tandem {

// Text or token ids, as in Request.
struct Prompt {
  std::string text;
  std::vector<TokenId> ids;
};

// Reads lines {"prompt": ...} or {"prompt_ids": [...]}; other fields are for other programs, blank
// lines are skipped. Errors name the file, the line and the field.
absl::StatusOr<std::vector<Prompt>> ReadPromptFile(const std::string& path);

}  // namespace tandem

#endif  // TANDEM_TOOLS_PROMPT_FILE_H_
