#include "tandem/generic_tools.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

// Like SmolLM2's: accepts any role and any content, but no tools.
constexpr char kChatMlTemplate[] =
    "{% for m in messages %}{% if loop.first and m.role != 'system' %}<|system|>You help.\n"
    "{% endif %}<|{{ m.role }}|>{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}";
// Like Gemma's: rejects system messages, and roles must alternate.
constexpr char kTurns[] =
    "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
    "<|{{ m.role }}|>{{ m.content }}\n{% endfor %}";
constexpr char kFunctionsText[] =
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n"
    "{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"z\": 1, "
    "\"a\": 2}}}\n</tools>\n\n"
    "For each function call, return a JSON object with function name and arguments within "
    "<tool_call></tool_call> XML tags:\n<tool_call>\n"
    "{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>";

JsonValue Functions() {
  return JsonValue::parse(
      R"([{"type": "function", "function": {"name": "f", "parameters": {"z": 1, "a": 2}}}])");
}

std::string Rendered(const char* jinja, const char* messages, const JsonValue& tools = nullptr) {
  const auto chat = ChatTemplate::Parse(jinja, "", "");
  ChatInput input;
  input.messages = JsonValue::parse(messages);
  input.tools = tools;
  const auto parts = RenderChat(*chat, input);
  if (!parts.ok()) return std::string(parts.status().message());
  std::string text;
  for (const MarkedText& part : *parts) text += part.text;
  return text;
}

TEST(GenericTools, PutsFunctionsIntoTheSystemMessage) {
  EXPECT_EQ(Rendered(kChatMlTemplate, R"([{"role": "user", "content": "Hi"}])", Functions()),
            absl::StrCat("<|system|>", kFunctionsText, "\n<|user|>Hi\n<|assistant|>"));
  EXPECT_EQ(Rendered(kChatMlTemplate,
                     R"([{"role": "system", "content": "Be brief."},
                         {"role": "user", "content": "Hi"}])",
                     Functions()),
            absl::StrCat("<|system|>Be brief.\n\n", kFunctionsText, "\n<|user|>Hi\n<|assistant|>"));
}

TEST(GenericTools, PutsFunctionsIntoTheFirstUserMessageIfSystemIsRejected) {
  EXPECT_EQ(Rendered(kTurns, R"([{"role": "user", "content": "Hi"}])", Functions()),
            absl::StrCat("<|user|>", kFunctionsText, "\n\nHi\n"));
}

// Requests have no functions when the client wants a final answer after the results.
TEST(GenericTools, WritesCallsAndResultsAsText) {
  constexpr char kMessages[] = R"([{"role": "user", "content": "Hi"},
      {"role": "assistant", "content": "Well.", "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"é": [1, "x"]}}},
        {"id": "2", "type": "function", "function": {"name": "g", "arguments": "{\"y\":2}"}}]},
      {"role": "tool", "tool_call_id": "2", "content": "two"},
      {"role": "tool", "tool_call_id": "1", "content": "o\"ne"},
      {"role": "user", "content": "And?"},
      {"role": "assistant", "content": null, "tool_calls": [
        {"id": "3", "type": "function", "function": {"name": "f"}}]},
      {"role": "tool", "content": "three"}])";
  constexpr char kTexts[] =
      "<|user|>Hi\n<|assistant|>Well.\n"
      "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"é\": [1, \"x\"]}}\n</tool_call>\n"
      "<tool_call>\n{\"name\": \"g\", \"arguments\": {\"y\":2}}\n</tool_call>\n"
      "<|user|><tool_response>\n{\"name\": \"g\", \"content\": \"two\"}\n</tool_response>\n"
      "<tool_response>\n{\"name\": \"f\", \"content\": \"o\\\"ne\"}\n</tool_response>\nAnd?\n"
      "<|assistant|><tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n"
      "<|user|><tool_response>\n{\"content\": \"three\"}\n</tool_response>\n";
  EXPECT_EQ(Rendered(kTurns, kMessages), kTexts);
  EXPECT_EQ(Rendered(kChatMlTemplate, kMessages),
            absl::StrCat("<|system|>You help.\n", kTexts, "<|assistant|>"));
}

TEST(GenericTools, IsNotForTemplatesThatWriteTools) {
  const auto needs = [](const char* jinja, const char* messages, const JsonValue& tools) {
    ChatInput input;
    input.messages = JsonValue::parse(messages);
    input.tools = tools;
    return NeedsGenericTools(*ChatTemplate::Parse(jinja, "", ""), input);
  };
  constexpr char kHi[] = R"([{"role": "user", "content": "Hi"}])";
  constexpr char kResult[] = R"([{"role": "tool", "content": "Hi"}])";
  EXPECT_TRUE(needs(kChatMlTemplate, kHi, Functions()));
  EXPECT_FALSE(needs(kChatMlTemplate, kHi, nullptr));
  EXPECT_FALSE(needs(kChatMlTemplate, kHi, JsonValue::array()));
  EXPECT_TRUE(needs(kChatMlTemplate, kResult, nullptr));
  EXPECT_FALSE(needs("{{ tools }}", kResult, Functions()));
  EXPECT_FALSE(needs("{{ messages }}", kResult, nullptr));  // it writes calls
  EXPECT_TRUE(needs("", kHi, Functions()));                 // a model without a template
  ChatInput with_tools = ChatInputOf({{"user", "Hi"}}, absl::UnixEpoch());
  with_tools.tools = Functions();
  const auto of_two = ChatTemplate::Parse(
      {.jinja = kChatMlTemplate, .tool_use = "{{ messages }}", .bos_token = "", .eos_token = ""});
  EXPECT_FALSE(NeedsGenericTools(*of_two, with_tools));
}

// Templates that write calls get them in the style that they expect, as in DeepSeek-R1's.
TEST(GenericTools, UsesTheCallStyleOfTemplatesThatWriteCalls) {
  EXPECT_EQ(
      Rendered("{% for m in messages %}{% if m.role == 'assistant' and m.content is none %}"
               "{{ m.tool_calls[0].function.name + ':' + m.tool_calls[0].function.arguments }}"
               "{% else %}{{ m.content }}{% endif %}{% endfor %}",
               R"([{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "",
                         "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]}])"),
      "Hi.f:{\"a\": 1}");
}

// Only the template's own text may contain special tokens.
TEST(GenericTools, FunctionsAreNotReadAsSpecialTokens) {
  const auto chat = ChatTemplate::Parse(kChatMlTemplate, "", "");
  ChatInput input;
  input.messages = JsonValue::parse(R"([{"role": "user", "content": "Hi"}])");
  input.tools = JsonValue::parse(R"(["<|system|>"])");
  const auto parts = RenderChat(*chat, input).value();
  for (const MarkedText& part : parts) {
    if (part.text.find("# Tools") == std::string::npos) continue;
    EXPECT_EQ(part.special, SpecialTokens::kPlain);
    EXPECT_THAT(part.text, HasSubstr("<|system|>"));
  }
}

TEST(GenericTools, ErrorsNameTheInvalidMessage) {
  EXPECT_THAT(Rendered(kChatMlTemplate, R"([{"role": "tool", "content": 5}])"),
              HasSubstr("messages[0].content: is not a string"));
  EXPECT_THAT(Rendered(kChatMlTemplate, R"([{"role": "user", "content": "a"},
                                    {"role": "assistant", "tool_calls": [{"id": "1"}]}])"),
              HasSubstr("messages[1].tool_calls: has a call without function.name"));
  EXPECT_THAT(Rendered(kChatMlTemplate, R"([{"role": "user", "content": [1]}])", Functions()),
              HasSubstr("# Tools"));  // the template decides which contents it accepts
  EXPECT_THAT(Rendered(kTurns, R"([{"role": "user", "content": [1]}])", Functions()),
              HasSubstr("messages[0].content: is not a string"));
}

}  // namespace
}  // namespace tandem
