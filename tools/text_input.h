#ifndef TANDEM_TOOLS_TEXT_INPUT_H_
#define TANDEM_TOOLS_TEXT_INPUT_H_

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem {

// Reads a text on demand, from a file, a pipe or standard input. Move-only.
class TextInput {
 public:
  // Lines and prompts that are longer are rejected. For comparison: a million tokens take about 8
  // MB as ids.
  static constexpr size_t kMaxBytes = size_t{64} << 20;

  // Opens `path`, or standard input for "-". NOT_FOUND or PERMISSION_DENIED, naming `path`.
  static absl::StatusOr<TextInput> Open(const std::string& path);
  TextInput(TextInput&& other) noexcept
      : name_(std::move(other.name_)),
        descriptor_(std::exchange(other.descriptor_, -1)),
        buffer_(std::move(other.buffer_)),
        begin_(other.begin_),
        num_searched_(other.num_searched_),
        at_end_(other.at_end_),
        failure_(std::move(other.failure_)),
        line_(other.line_) {}
  TextInput& operator=(TextInput&& other) = delete;
  ~TextInput();

  // Returns the next line without its line end; nullopt after the last line. INVALID_ARGUMENT for a
  // line that is too long, which is skipped; after any other error, returns nullopt.
  std::optional<absl::StatusOr<std::string>> NextLine();
  // Whether NextLine would return without blocking. Reads the bytes that are available.
  bool HasNextLine();
  // Returns the rest of the text. INVALID_ARGUMENT if it is too long.
  absl::StatusOr<std::string> ReadRest();

  const std::string& name() const { return name_; }
  int line() const { return line_; }  // the number of the last line read, from 1
  std::string where() const;          // "name:line"

 private:
  TextInput(std::string name, int descriptor) : name_(std::move(name)), descriptor_(descriptor) {}
  // Appends the bytes of one read() to the buffer; no bytes at the end of the input.
  absl::Status Read();
  // Returns the position of the next line end in the buffer, or the buffer's size.
  size_t FindLineEnd();

  std::string name_;
  int descriptor_;
  std::string buffer_{};  // bytes from begin_ on have been read and not yet returned
  size_t begin_ = 0;
  size_t num_searched_ = 0;  // bytes from begin_ on that have no line end
  bool at_end_ = false;
  absl::Status failure_{};  // of the last read, if it has not been returned yet
  int line_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_TEXT_INPUT_H_
