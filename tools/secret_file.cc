#include "tools/secret_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/format.h"
#include "base/net/secret.h"
#include "base/status_macros.h"
#include "tandem/field_error.h"

namespace tandem {
namespace {

constexpr size_t kLongestKey = 1000;   // so that it fits into a request's head
constexpr size_t kLongestFile = 2100;  // two secrets

absl::Status CheckAccess(std::FILE* file, const SecretSource& source) {
  struct stat found = {};
  const bool is_protected = fstat(fileno(file), &found) == 0 && S_ISREG(found.st_mode) &&
                            (found.st_uid == geteuid() || found.st_uid == 0) &&
                            (found.st_mode & (S_IRWXO | S_IWGRP)) == 0;
  if (is_protected) return absl::OkStatus();
  return FieldError(
      source.file_option,
      Format("%s must be a regular file of this user (%d) or root, without access for "
             "others and without write access for its group (chmod 400), got %s of user "
             "%d with mode %04o",
             source.file, geteuid(),
             S_ISREG(found.st_mode) ? "a regular file" : "another kind of file", found.st_uid,
             found.st_mode & 07777));
}

// Returns the text of the source's file without white space at its end.
absl::StatusOr<std::string> ReadSecretFile(const SecretSource& source) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(source.file.c_str(), "rbe"),
                                                             &std::fclose);
  if (file != nullptr && source.needed_by != nullptr) {
    RETURN_IF_ERROR(CheckAccess(file.get(), source));
  }
  std::string text(kLongestFile, '\0');
  if (file != nullptr) text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  if (file == nullptr || std::ferror(file.get()) != 0) {
    return absl::NotFoundError(absl::StrCat(source.file_option, ": cannot read ", source.file));
  }
  return std::string(absl::StripTrailingAsciiWhitespace(text));
}

absl::Status CheckKey(absl::string_view source, absl::string_view key) {
  if (key.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(source, ": the key is empty; give the key, or leave this out"));
  }
  const bool is_sendable =
      key.size() <= kLongestKey && std::all_of(key.begin(), key.end(), absl::ascii_isgraph);
  if (is_sendable) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(source, ": the key has ", key.size(),
                                                 " bytes, allowed: at most ", kLongestKey,
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
    source = needed_by == nullptr ? file : file_option;
    ASSIGN_OR_RETURN(secret, ReadSecretFile(*this));
  } else if (const char* value = std::getenv(variable); value != nullptr) {
    source = variable;
    secret = value;
  } else if (needed_by == nullptr) {
    return secret;
  } else {
    return FieldError(file_option,
                      absl::StrCat("is required by ", needed_by, ", unless ", variable,
                                   " holds the secret; `openssl rand -hex 32` makes one"));
  }
  RETURN_IF_ERROR(needed_by == nullptr ? CheckKey(source, secret)
                                       : ParseSecrets(secret, source).status());
  return secret;
}

}  // namespace tandem
