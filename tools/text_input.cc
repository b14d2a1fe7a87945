#include "tools/text_input.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace tandem {
namespace {

absl::Status TooLong(const std::string& where) {
  return absl::InvalidArgumentError(
      absl::StrCat(where, ": longer than the allowed ", TextInput::kMaxBytes, " bytes"));
}

}  // namespace

absl::StatusOr<TextInput> TextInput::Open(const std::string& path) {
  if (path == "-") return TextInput("standard input", STDIN_FILENO);
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return absl::ErrnoToStatus(errno, path);
  return TextInput(path, descriptor);
}

TextInput::~TextInput() {
  if (descriptor_ > STDIN_FILENO) close(descriptor_);
}

absl::Status TextInput::Read() {
  buffer_.erase(0, begin_);
  begin_ = 0;
  char bytes[1 << 16];
  ssize_t size = 0;
  do {
    size = read(descriptor_, bytes, sizeof(bytes));
  } while (size < 0 && errno == EINTR);
  at_end_ = size <= 0;
  if (size >= 0) {
    buffer_.append(bytes, size);
    return absl::OkStatus();
  }
  buffer_.clear();
  num_searched_ = 0;
  return absl::ErrnoToStatus(errno, absl::StrCat(name_, ": cannot be read"));
}

size_t TextInput::FindLineEnd() {
  const size_t end = std::min(buffer_.find('\n', begin_ + num_searched_), buffer_.size());
  num_searched_ = end - begin_;
  return end;
}

bool TextInput::HasNextLine() {
  while (FindLineEnd() == buffer_.size() && !at_end_ && num_searched_ <= kMaxBytes) {
    pollfd readable = {.fd = descriptor_, .events = POLLIN, .revents = 0};
    if (poll(&readable, 1, /*timeout=*/0) <= 0) return false;
    failure_ = Read();
  }
  return true;
}

std::optional<absl::StatusOr<std::string>> TextInput::NextLine() {
  if (!failure_.ok()) return std::exchange(failure_, absl::OkStatus());
  size_t end = 0;
  bool is_too_long = false;
  while ((end = FindLineEnd()) == buffer_.size() && !at_end_) {
    if (num_searched_ > kMaxBytes) {
      is_too_long = true;
      num_searched_ = begin_ = 0;
      buffer_.clear();
    }
    if (const absl::Status status = Read(); !status.ok()) return status;
  }
  if (end == buffer_.size() && begin_ == end && !is_too_long) return std::nullopt;
  ++line_;
  is_too_long = is_too_long || end - begin_ > kMaxBytes;
  std::string line = is_too_long ? "" : buffer_.substr(begin_, end - begin_);
  begin_ = std::min(end + 1, buffer_.size());
  num_searched_ = 0;
  if (is_too_long) return TooLong(where());
  return line;
}

absl::StatusOr<std::string> TextInput::ReadRest() {
  RETURN_IF_ERROR(std::exchange(failure_, absl::OkStatus()));
  while (!at_end_) {
    RETURN_IF_ERROR(Read());
    if (buffer_.size() > kMaxBytes) return TooLong(name_);
  }
  return std::exchange(buffer_, "").substr(std::exchange(begin_, 0));
}

std::string TextInput::where() const { return absl::StrCat(name_, ":", line_); }

}  // namespace tandem
