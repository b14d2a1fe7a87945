#ifndef TANDEM_INCLUDE_TANDEM_ANSWER_DELTA_H_
#define TANDEM_INCLUDE_TANDEM_ANSWER_DELTA_H_

#include <string>
#include <vector>

namespace tandem {

// An answer, or the addition of one piece of its text.
struct AnswerDelta {
  struct Call {
    int index = 0;
    std::string name{};       // of a call that begins here, else empty
    std::string arguments{};  // a JSON object, or the next part of one
  };
  std::string reasoning{};
  std::string content{};
  std::vector<Call> calls{};

  bool empty() const { return reasoning.empty() && content.empty() && calls.empty(); }
  // Adds what comes next.
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

#endif  // TANDEM_INCLUDE_TANDEM_ANSWER_DELTA_H_
