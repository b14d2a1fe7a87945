#ifndef TANDEM_INCLUDE_TANDEM_ANSWER_DELTA_H_
#define TANDEM_INCLUDE_TANDEM_ANSWER_DELTA_H_

#include <string>
#include <vector>

namespace tandem {

// An answer, or the part of it that one piece of text adds.
struct AnswerDelta {
  struct Call {
    int index = 0;
    std::string name{};       // set if the call begins here, else empty
    std::string arguments{};  // a JSON object, or its next part
  };
  std::string reasoning{};
  std::string content{};
  std::vector<Call> calls{};

  bool empty() const { return reasoning.empty() && content.empty() && calls.empty(); }
  // Appends the delta that follows this one.
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
