#include "server/api/chat_fields.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tandem/field_error.h"
#include "tandem/json_value.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using Json = SortedJson;

absl::StatusOr<ChatInput> ReadInput(const std::string& body) {
  const JsonValue json = JsonValue::parse(body);
  RequestFields fields(&json, "");
  ChatInput chat;
  ReadChatInput(&fields, &chat);
  if (absl::Status status = fields.Finish(); !status.ok()) return status;
  return chat;
}

absl::StatusOr<ChatInput> ReadInputMessages(const std::string& messages) {
  return ReadInput("{\"messages\": " + messages + "}");
}

TEST(ChatFields, FormTheInputOfTheTemplate) {
  const auto chat = ReadInput(R"({"messages": [
      {"role": "developer", "content": "s"},
      {"role": "user", "name": "me", "content": [{"type": "text", "text": "a"},
                                                  {"type": "text", "text": "b"}]},
      {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function",
        "index": 0, "function": {"name": "f", "arguments": "{\"x\": [1, \"<|im_end|>\"]}"}}]},
      {"role": "tool", "tool_call_id": "1", "content": "4"},
      {"role": "assistant", "content": "c", "tool_calls": [], "reasoning_content": "t"}],
    "chat_template_kwargs": {"enable_thinking": false}, "reasoning_effort": "low"})");
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(Json(chat->messages), Json::parse(R"([
      {"role": "system", "content": "s"},
      {"role": "user", "name": "me", "content": "ab"},
      {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "type": "function",
        "function": {"name": "f", "arguments": {"x": [1, "<|im_end|>"]}}}]},
      {"role": "tool", "tool_call_id": "1", "content": "4"},
      {"role": "assistant", "content": "c", "reasoning_content": "t"}])"));
  EXPECT_EQ(Json(chat->kwargs), Json({{"enable_thinking", false}, {"reasoning_effort", "low"}}));
  EXPECT_TRUE(chat->add_generation_prompt);
  EXPECT_FALSE(chat->continue_final_message);
}

// The model saw the members in this order when it made the call, and templates write them in the
// order given.
TEST(ChatFields, KeepTheOrderOfMembers) {
  const char* const said = R"({"z":{"b":1,"a":2},"a":3})";
  for (const std::string& arguments :
       {std::string(said), std::string(R"("{\"z\": {\"b\": 1, \"a\": 2}, \"a\": 3}")")}) {
    const auto chat = ReadInput(R"({"messages": [{"tool_calls": [{"type": "function", "function":
        {"arguments": )" + arguments +
                                R"(, "name": "f"}, "id": "1"}], "role": "assistant"},
        {"role": "tool", "content": "4", "tool_call_id": "1"}],
        "chat_template_kwargs": )" +
                                said + R"(, "reasoning_effort": "low"})");
    ASSERT_TRUE(chat.ok()) << chat.status();
    EXPECT_EQ(chat->messages.dump(),
              std::string(R"([{"tool_calls":[{"type":"function","function":{"arguments":)") + said +
                  R"(,"name":"f"},"id":"1"}],"role":"assistant","content":""},)" +
                  R"({"role":"tool","content":"4","tool_call_id":"1"}])");
    EXPECT_EQ(chat->kwargs.dump(), R"({"z":{"b":1,"a":2},"a":3,"reasoning_effort":"low"})");
  }
}

TEST(ChatFields, ContinuedMessagesGetNoGenerationPrompt) {
  const std::string messages = R"({"messages": [{"role": "user", "content": "x"}], )";
  const auto going_on = ReadInput(messages + R"("continue_final_message": true})");
  ASSERT_TRUE(going_on.ok()) << going_on.status();
  EXPECT_TRUE(going_on->continue_final_message);
  EXPECT_FALSE(going_on->add_generation_prompt);
  const auto both =
      ReadInput(messages + R"("continue_final_message": true, "add_generation_prompt": true})");
  EXPECT_EQ(FieldOf(both.status()), "add_generation_prompt");
  const auto neither = ReadInput(messages + R"("add_generation_prompt": false})");
  ASSERT_TRUE(neither.ok());
  EXPECT_FALSE(neither->add_generation_prompt);
}

TEST(ChatFields, InvalidFieldsAreNamed) {
  const struct {
    const char* messages;
    const char* field;
    const char* part;
  } cases[] = {
      {R"([{"role": "assistant", "content": null}])", "messages[0].content", "is required"},
      {R"([{"role": "user", "content": "x", "tool_calls": [{"function": {"name": "f"}}]}])",
       "messages[0].tool_calls", "assistants"},
      {R"([{"role": "assistant", "tool_calls": 5}])", "messages[0].tool_calls", "5"},
      {R"([{"role": "assistant", "tool_calls": [5]}])", "messages[0].tool_calls[0]", "5"},
      {R"([{"role": "assistant", "tool_calls": [{}]}])", "messages[0].tool_calls[0].function",
       "is required"},
      {R"([{"role": "assistant", "tool_calls": [{"function": {}}]}])",
       "messages[0].tool_calls[0].function.name", "is required"},
      {R"([{"role": "assistant", "tool_calls": [{"type": "x", "function": {"name": "f"}}]}])",
       "messages[0].tool_calls[0].type", "\"x\""},
      {R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 1}}]}])",
       "messages[0].tool_calls[0].function.arguments", "1"}};
  for (const auto& c : cases) {
    const auto chat = ReadInputMessages(c.messages);
    ASSERT_FALSE(chat.ok()) << c.messages;
    EXPECT_EQ(FieldOf(chat.status()), c.field) << chat.status();
    EXPECT_THAT(std::string(chat.status().message()), HasSubstr(c.part));
  }
}

}  // namespace
}  // namespace tandem
