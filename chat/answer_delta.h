#ifndef TANDEM_CHAT_ANSWER_DELTA_H_
#define TANDEM_CHAT_ANSWER_DELTA_H_

#include <string>
#include <vector>

namespace tandem {

// What a part of an answer's text adds to the answer.
struct AnswerDelta {
  struct Call {
    int index = 0;
    std::string name{};  // of a call that begins here, else empty
    std::string arguments{};
  };
  std::string reasoning{};
  std::string content{};
  std::vector<Call> calls{};

  bool empty() const { return reasoning.empty() && content.empty() && calls.empty(); }
  // Adds what comes behind.
  void Append(const AnswerDelta& next) {
    reasoning += next.reasoning;
    content += next.content;
    for (const Call& call : next.calls) {
      if (calls.empty() || !call.name.empty() || calls.back().index != call.index) {
        calls.push_back(call);
      } else {
        calls.back().arguments += call.arguments;
      }
    }
  }
};

}  // namespace tandem

#endif  // TANDEM_CHAT_ANSWER_DELTA_H_
