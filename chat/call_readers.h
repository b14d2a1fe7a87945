// The forms that calls of functions have within an answer's text, each read byte by byte.
#ifndef TANDEM_CHAT_CALL_READERS_H_
#define TANDEM_CHAT_CALL_READERS_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/tool_calls.h"
#include "tandem/tool_format.h"

namespace tandem {

// One call. Thread-compatible.
class CallReader {
 public:
  enum class State { kOpen, kDone, kWrong };
  // One call, read by the parts of `format`.
  // `functions` must outlive it.
  static std::unique_ptr<CallReader> Of(const ToolFormat& format,
                                        const std::vector<CallableFunction>* functions);
  static std::unique_ptr<CallReader> OfJson();
  virtual ~CallReader() = default;
  // REQUIRES: it is kOpen.
  virtual State Read(char byte) = 0;

  // Known once it has ended.
  const std::optional<std::string>& name() const { return name_; }
  // A JSON object, as far as it has come.
  const std::string& arguments() const { return arguments_; }
  bool has_arguments() const { return !arguments_.empty(); }

 protected:
  std::optional<std::string> name_{};
  std::string arguments_{};
};

}  // namespace tandem

#endif  // TANDEM_CHAT_CALL_READERS_H_
