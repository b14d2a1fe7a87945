#ifndef TANDEM_TOOLS_SECRET_FILE_H_
#define TANDEM_TOOLS_SECRET_FILE_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem {

// A secret that an option, a file, or a variable of the environment gives, in this order. Messages
// show none.
struct SecretSource {
  const char* what;         // such as "the key"
  const char* option;       // its name; null where a secret cannot be typed
  const char* file_option;  // the name of the option that names the file
  const char* variable;

  std::optional<std::string> given{};  // by the option
  std::string file{};

  // The secret: at most 1,000 visible ASCII characters; empty if nothing gives one. Errors name
  // the source.
  absl::StatusOr<std::string> Read() const;
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_SECRET_FILE_H_
