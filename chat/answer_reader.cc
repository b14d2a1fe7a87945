#include "tandem/answer_reader.h"

#include <utility>

namespace tandem {

AnswerReader::AnswerReader(const Options& options) : reasoning_(options.reasoning) {
  if (options.reasoning.has_value()) splitter_.emplace(options.reasoning->splitter);
  if (options.tools.has_value()) tools_.emplace(*options.tools);
}

AnswerDelta AnswerReader::Read(const Options& options, std::string_view text) {
  AnswerReader reader(options);
  AnswerDelta answer = reader.Push(text);
  answer.Append(reader.Finish());
  return answer;
}

AnswerDelta AnswerReader::Shown(AnswerDelta delta, bool is_last) {
  if (!reasoning_->is_shown) delta.reasoning.clear();
  if (reasoning_->is_streamed) return delta;
  held_reasoning_ += delta.reasoning;
  delta.reasoning.clear();
  if (is_last || splitter_->is_over()) {
    delta.reasoning = std::exchange(held_reasoning_, std::string());
  }
  return delta;
}

AnswerDelta AnswerReader::Push(std::string_view text) {
  AnswerDelta delta{.content = std::string(text)};
  if (splitter_.has_value()) delta = Shown(splitter_->Push(text), /*is_last=*/false);
  if (!tools_.has_value()) return delta;
  const std::string said = std::exchange(delta.content, std::string());
  delta.Append(tools_->Push(said));
  return delta;
}

AnswerDelta AnswerReader::Finish() {
  AnswerDelta delta;
  if (splitter_.has_value()) delta = Shown(splitter_->Finish(), /*is_last=*/true);
  if (!tools_.has_value()) return delta;
  const std::string said = std::exchange(delta.content, std::string());
  delta.Append(tools_->Push(said));
  delta.Append(tools_->Finish());
  return delta;
}

}  // namespace tandem
