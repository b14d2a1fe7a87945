#ifndef TANDEM_TOOLS_SECRET_FILE_H_
#define TANDEM_TOOLS_SECRET_FILE_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem {

// A secret from an option, a file or an environment variable, in this order of precedence. Messages
// never show the secret.
struct SecretSource {
  const char* what;         // such as "the key"
  const char* option;       // name of the option with the secret; null if there is no such option
  const char* file_option;  // name of the option with the file's path
  const char* variable;     // name of the environment variable

  std::optional<std::string> given{};  // value of the option
  std::string file{};                  // value of the file option

  // Returns the secret, at most 1,000 visible ASCII characters; empty if no source has one. Errors
  // name the source.
  absl::StatusOr<std::string> Read() const;
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_SECRET_FILE_H_
