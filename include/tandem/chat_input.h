// The input of a chat template.
#ifndef TANDEM_INCLUDE_TANDEM_CHAT_INPUT_H_
#define TANDEM_INCLUDE_TANDEM_CHAT_INPUT_H_

#include <optional>

#include "absl/time/time.h"
#include "tandem/json_value.h"

namespace tandem {

// A conversation as the arguments of transformers' apply_chat_template. Strings in `messages`,
// `tools` and `kwargs` are untrusted: they never become special tokens, whatever they spell.
// Members of objects keep their order, in which templates write them.
struct ChatInput {
  // Objects with "role", "content" (a string) and any other member that the template reads: "name",
  // "tool_calls", "tool_call_id", "reasoning_content".
  JsonValue messages = JsonValue::array();
  // A list of functions as OpenAI's API has them, or null.
  JsonValue tools = nullptr;
  // Further variables, such as enable_thinking.
  JsonValue kwargs = JsonValue::object();
  bool add_generation_prompt = true;
  // The prompt ends in the last message's content, without its end token. Not allowed together with
  // a generation prompt.
  bool continue_final_message = false;
  // Maximum number of tokens of the answer's reasoning (docs/thinking_budget.md). Without it, the
  // variable "reasoning_effort" may imply one.
  std::optional<int> max_thinking_tokens{};
  absl::Time now = absl::UnixEpoch();  // for templates that write the date
};

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_CHAT_INPUT_H_
