#include "tools/standard_output.h"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>

#include "base/output_folder.h"

namespace tandem {

void PrepareStandardStreams() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) >= 0) continue;
    // The lowest free descriptor is this one. What is read-only refuses results.
    (void)open("/dev/null", stream == STDERR_FILENO ? O_WRONLY : O_RDONLY);
  }
}

absl::Status Print(std::string_view text) {
  return WriteAll(STDOUT_FILENO, {text.data(), text.size()}, "standard output");
}

}  // namespace tandem
