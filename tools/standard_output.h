// Standard output, where results go. It may be a full disk, or a pipe whose reader has gone.
#ifndef TANDEM_TOOLS_STANDARD_OUTPUT_H_
#define TANDEM_TOOLS_STANDARD_OUTPUT_H_

#include <string_view>

#include "absl/status/status.h"

namespace tandem {

// To be called first of all. Makes a write to a closed pipe, or past the largest size of a file, an
// error of that write and not the end of the process; and takes the places of closed standard
// streams, so that no file opened later gets what is printed.
void PrepareStandardStreams();

// Writes all of `text` at once: results go this way and no other. An error, "standard output: ...",
// means that they are lost: the command has failed, and what it has left to do is not wanted.
absl::Status Print(std::string_view text);

}  // namespace tandem

#endif  // TANDEM_TOOLS_STANDARD_OUTPUT_H_
