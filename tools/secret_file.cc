#include "tools/secret_file.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace tandem {
namespace {

constexpr size_t kLongestSecret = 1000;  // so that it fits into a request's head

// Returns the text of a file without white space at its end.
absl::StatusOr<std::string> ReadSecretFile(absl::string_view option, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kLongestSecret + 2, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad()) {
    return absl::NotFoundError(absl::StrCat(option, ": cannot read ", path));
  }
  text.resize(static_cast<size_t>(file.gcount()));
  return std::string(absl::StripTrailingAsciiWhitespace(text));
}

absl::Status CheckSecret(absl::string_view what, absl::string_view source,
                         absl::string_view secret) {
  if (secret.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(source, ": ", what, " is empty; give ", what, ", or leave this out"));
  }
  const bool is_sendable = secret.size() <= kLongestSecret &&
                           std::all_of(secret.begin(), secret.end(), absl::ascii_isgraph);
  if (is_sendable) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(source, ": ", what, " has ", secret.size(),
                                                 " bytes, allowed: at most ", kLongestSecret,
                                                 ", all of them visible ASCII characters"));
}

}  // namespace

absl::StatusOr<std::string> SecretSource::Read() const {
  std::string source;
  std::string secret;
  if (given.has_value()) {
    source = option;
    secret = *given;
  } else if (!file.empty()) {
    source = file;
    ASSIGN_OR_RETURN(secret, ReadSecretFile(file_option, file));
  } else if (const char* value = std::getenv(variable); value != nullptr) {
    source = variable;
    secret = value;
  } else {
    return secret;
  }
  RETURN_IF_ERROR(CheckSecret(what, source, secret));
  return secret;
}

}  // namespace tandem
