#ifndef TANDEM_SERVER_API_ANSWER_READER_H_
#define TANDEM_SERVER_API_ANSWER_READER_H_

#include <optional>
#include <string>
#include <string_view>

#include "chat/answer_delta.h"
#include "chat/reasoning.h"
#include "chat/tool_calls.h"
#include "server/api/api_request.h"

namespace tandem {

// Takes the text of one of a chat's answers apart, however it is cut into pieces: reasoning,
// content and calls, as far as the request has them. Calls are behind the reasoning.
// Thread-compatible.
class AnswerReader {
 public:
  // Whether there is anything to take apart.
  static bool IsNeededFor(const ApiRequest& request) {
    return request.reasoning.has_value() || request.tools.has_value();
  }

  // `request` must outlive it.
  explicit AnswerReader(const ApiRequest* request);

  AnswerDelta Push(std::string_view text);
  // At the end of the text: what was held back.
  AnswerDelta Finish();

  int num_calls() const { return tools_.has_value() ? tools_->num_calls() : 0; }

 private:
  // What of the reasoning is shown, now or later.
  AnswerDelta Shown(AnswerDelta delta, bool is_last);

  const ApiRequest* request_;
  std::optional<ReasoningSplitter> splitter_{};
  std::optional<ToolCallParser> tools_{};
  std::string held_reasoning_{};  // until it is whole
};

}  // namespace tandem

#endif  // TANDEM_SERVER_API_ANSWER_READER_H_
