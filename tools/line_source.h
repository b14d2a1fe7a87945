#ifndef TANDEM_TOOLS_LINE_SOURCE_H_
#define TANDEM_TOOLS_LINE_SOURCE_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace tandem {

// The lines that somebody types or a pipe brings.
class LineSource {
 public:
  virtual ~LineSource() = default;
  // The next line without its end; nothing behind the last. A line that is too long, which is
  // skipped, is an INVALID_ARGUMENT.
  virtual std::optional<absl::StatusOr<std::string>> NextLine() = 0;
};

// Of standard input. Where that and standard output are a terminal, lines are asked for with
// `prompt`, edited by libedit, and remembered for the arrow keys; Ctrl-C gives the line up, which
// is then empty, and Ctrl-D on an empty one is the end. One at a time.
std::unique_ptr<LineSource> OpenStandardInput(const std::string& prompt);
// Whether that is so.
bool IsTyped();

}  // namespace tandem

#endif  // TANDEM_TOOLS_LINE_SOURCE_H_
