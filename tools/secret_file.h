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
  const char* option;       // name of the option with the secret; null if there is no such option
  const char* file_option;  // name of the option with the file's path
  const char* variable;     // name of the environment variable
  // Null for a key of clients. Otherwise the option that requires the secret, which processes of
  // ours share: ParseSecrets has its rules. Its file must be a regular file of this user or root
  // that others cannot access and its group cannot write. Kubernetes mounts a Secret with mode 0440
  // for root and the pod's group.
  const char* needed_by = nullptr;

  std::optional<std::string> given{};  // value of the option
  std::string file{};                  // value of the file option

  // Returns the secret. A key has at most 1,000 visible ASCII characters, and is empty if no source
  // has one. Errors name the source.
  absl::StatusOr<std::string> Read() const;
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_SECRET_FILE_H_
