// Readers of tool calls in an answer's text, one for each format. They read byte by byte.
#ifndef TANDEM_TEXT_CHAT_CALL_READERS_H_
#define TANDEM_TEXT_CHAT_CALL_READERS_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/tool_calls.h"
#include "tandem/tool_format.h"

namespace tandem {

// Reads one call. Thread-compatible.
class CallReader {
 public:
  enum class State { kOpen, kDone, kWrong };
  // Returns a reader of calls in `format`. `functions` must outlive the reader.
  static std::unique_ptr<CallReader> Of(const ToolFormat& format,
                                        const std::vector<CallableFunction>* functions);
  static std::unique_ptr<CallReader> OfJson();
  virtual ~CallReader() = default;
  // Reads the next byte of the call.
  // REQUIRES: the last call, if any, returned kOpen.
  virtual State Read(char byte) = 0;

  // The function's name; nullopt until the name has been read to its end.
  const std::optional<std::string>& name() const { return name_; }
  // The bytes read so far of the arguments, a JSON object.
  const std::string& arguments() const { return arguments_; }
  bool has_arguments() const { return !arguments_.empty(); }

 protected:
  std::optional<std::string> name_{};
  std::string arguments_{};
};

}  // namespace tandem

#endif  // TANDEM_TEXT_CHAT_CALL_READERS_H_
