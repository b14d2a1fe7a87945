#ifndef TANDEM_TOOLS_TEXT_INPUT_H_
#define TANDEM_TOOLS_TEXT_INPUT_H_

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem {

// A text that is read as it is wanted: a file, a pipe, standard input. Move-only.
class TextInput {
 public:
  // Longer lines and prompts than this are refused: a million tokens take about 8 MB as ids.
  static constexpr size_t kMaxBytes = size_t{64} << 20;

  // "-" is standard input. NOT_FOUND or PERMISSION_DENIED naming `path`.
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

  // The next line, without its end; nothing behind the last. INVALID_ARGUMENT for a line that is
  // too long, which is skipped; another error is the last thing that is read.
  std::optional<absl::StatusOr<std::string>> NextLine();
  // Whether NextLine would not wait for whoever writes the text. Reads what is there.
  bool HasNextLine();
  // All that is left. INVALID_ARGUMENT if it is too long.
  absl::StatusOr<std::string> ReadRest();

  const std::string& name() const { return name_; }
  int line() const { return line_; }  // the number of the last line read, from 1
  std::string where() const;          // "name:line"

 private:
  TextInput(std::string name, int descriptor) : name_(std::move(name)), descriptor_(descriptor) {}
  // Appends what can be read at once, which is nothing at the end.
  absl::Status Read();
  // The place of the next line's end; the buffer's if it has none.
  size_t FindLineEnd();

  std::string name_;
  int descriptor_;
  std::string buffer_{};  // [begin_, its end) is read and not yet handed out
  size_t begin_ = 0;
  size_t num_searched_ = 0;  // bytes from begin_ on that have no line's end
  bool at_end_ = false;
  absl::Status failure_{};  // of the last read, if nobody was told yet
  int line_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_TEXT_INPUT_H_
