// Tests of how chat answers are requested (shown tokens, constraint) and read.
#include "tandem/chat_answer.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tandem/field_error.h"
#include "tandem/json_value.h"

namespace tandem {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kMistralMarkers[] =
    "{{ messages[-1].content }}{{ tools }}{{ '[TOOL_CALLS][ARGS][THINK]' if false }}";
constexpr char kOpensReasoning[] =
    "{{ messages[-1].content }}{{ tools }}{{ '<think>' if add_generation_prompt }}";

// A tokenizer of printable ASCII bytes and the given special tokens.
std::unique_ptr<Tokenizer> BytesAnd(const std::vector<std::string>& markers) {
  SortedJson file = {{"model", {{"type", "BPE"}, {"merges", SortedJson::array()}}},
                     {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
                     {"decoder", {{"type", "ByteLevel"}}}};
  int id = 0;
  for (int byte = 33; byte < 127; ++byte) {
    file["model"]["vocab"][std::string(1, static_cast<char>(byte))] = id++;
  }
  for (const std::string& marker : markers) {
    file["added_tokens"].push_back({{"id", id++}, {"content", marker}, {"special", true}});
  }
  auto tokenizer = Tokenizer::Parse(file.dump(), "", "test");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

ChatInput HiWith(const char* tools) {
  ChatInput input;
  input.messages = JsonValue::parse(R"([{"role": "user", "content": "Hi"}])");
  if (tools != nullptr) input.tools = JsonValue::parse(tools);
  return input;
}

absl::StatusOr<ChatAnswer> AnswerOf(const char* jinja, const Tokenizer& tokenizer,
                                    const ChatInput& input, bool is_constrained = false) {
  const auto chat = ChatTemplate::Parse(jinja, "", "");
  EXPECT_TRUE(chat.ok()) << chat.status();
  const auto prompt = EncodeChat(*chat, tokenizer, input);
  EXPECT_TRUE(prompt.ok()) << prompt.status();
  return ChatAnswer::Of(*chat, tokenizer, input, *prompt, is_constrained);
}

constexpr char kOneTool[] = R"([{"type": "function", "function": {"name": "f"}}])";
constexpr char kStrictTool[] =
    R"([{"type": "function", "function": {"name": "f", "strict": true}}])";

TEST(ChatAnswer, ShowsMarkersThatAreSpecialTokens) {
  const auto tokenizer = BytesAnd({"[TOOL_CALLS]", "[ARGS]", "[THINK]", "[/THINK]", "[OTHER]"});
  const auto id = [&](const char* marker) { return tokenizer->IdOf(marker); };
  const auto answer = AnswerOf(kMistralMarkers, *tokenizer, HiWith(kOneTool)).value();
  EXPECT_THAT(answer.shown_special_tokens,
              ElementsAre(id("[TOOL_CALLS]"), id("[ARGS]"), id("[THINK]"), id("[/THINK]")));
  EXPECT_FALSE(answer.constraint.has_value());
  const AnswerDelta read =
      AnswerReader::Read(answer.reading, "[THINK]So.[/THINK]Well.[TOOL_CALLS]f[ARGS]{\"a\": 1}");
  EXPECT_EQ(read.reasoning, "So.");
  EXPECT_EQ(read.content, "Well.");
  ASSERT_EQ(read.calls.size(), 1u);
  EXPECT_EQ(read.calls[0].arguments, "{\"a\": 1}");
  const auto without = AnswerOf(kMistralMarkers, *tokenizer, HiWith(nullptr)).value();
  EXPECT_THAT(without.shown_special_tokens, ElementsAre(id("[THINK]"), id("[/THINK]")));
  EXPECT_FALSE(without.reading.tools.has_value());
}

TEST(ChatAnswer, FindsWhereReasoningBegins) {
  const auto tokenizer = BytesAnd({});
  const auto start = [&](const ChatInput& input, bool is_constrained = false) {
    const auto answer = AnswerOf(kOpensReasoning, *tokenizer, input, is_constrained);
    EXPECT_TRUE(answer.ok()) << answer.status();
    if (!answer->reading.reasoning.has_value()) return ReasoningStart::kNone;
    return answer->reading.reasoning->splitter.start;
  };
  ChatInput input = HiWith(nullptr);
  EXPECT_EQ(start(input), ReasoningStart::kInside);
  EXPECT_EQ(start(input, /*is_constrained=*/true), ReasoningStart::kMayBegin);
  input.add_generation_prompt = false;
  EXPECT_EQ(start(input), ReasoningStart::kMayBegin);
  input.continue_final_message = true;
  input.messages[0] = {{"role", "assistant"}, {"content", "<think>So"}};
  EXPECT_EQ(start(input), ReasoningStart::kContinues);
  input.messages[0]["content"] = "<think>So</think>Hi";
  EXPECT_EQ(start(input), ReasoningStart::kNone);
}

TEST(ChatAnswer, LimitsTheReasoning) {
  const auto tokenizer = BytesAnd({});
  ChatInput input = HiWith(nullptr);
  EXPECT_FALSE(AnswerOf(kOpensReasoning, *tokenizer, input)->thinking_budget.has_value());
  input.max_thinking_tokens = 7;
  const auto answer = AnswerOf(kOpensReasoning, *tokenizer, input).value();
  ASSERT_TRUE(answer.thinking_budget.has_value());
  EXPECT_EQ(answer.thinking_budget->max_tokens, 7);
  EXPECT_EQ(answer.thinking_budget->markers.start, ReasoningStart::kInside);
  for (const auto& refused : {AnswerOf(kOpensReasoning, *tokenizer, input, /*is_constrained=*/true),
                              AnswerOf("{{ messages[0].content }}", *tokenizer, input)}) {
    EXPECT_EQ(FieldOf(refused.status()), "max_thinking_tokens") << refused.status();
  }
}

TEST(ChatAnswer, HoldsStrictFunctionsToTheirSchemas) {
  const auto tokenizer = BytesAnd({});
  const auto answer = AnswerOf(kMistralMarkers, *tokenizer, HiWith(kStrictTool)).value();
  ASSERT_TRUE(answer.constraint.has_value());
  EXPECT_THAT(answer.constraint->text, HasSubstr("triggered_tags"));
  const auto twice =
      AnswerOf(kMistralMarkers, *tokenizer, HiWith(kStrictTool), /*is_constrained=*/true);
  EXPECT_EQ(FieldOf(twice.status()), "tools[0].function.strict");
  EXPECT_TRUE(AnswerOf(kMistralMarkers, *tokenizer, HiWith(kOneTool), true).ok());
}

TEST(ChatAnswer, ErrorsNameTheInvalidMember) {
  const auto tokenizer = BytesAnd({});
  const struct {
    const char* tools;
    const char* field;
    const char* found;
  } cases[] = {
      {R"({})", "tools", "{}"},
      {R"([5])", "tools[0]", "5"},
      {R"([{"type": "x"}])", "tools[0].type", "x"},
      {R"([{"type": "function"}])", "tools[0].function", "is required"},
      {R"([{"type": "function", "function": {"name": "f", "parameters": 5}}])",
       "tools[0].function.parameters", "5"},
  };
  for (const auto& c : cases) {
    ChatInput input = HiWith(nullptr);
    const auto prompt = std::vector<TokenId>{1};
    input.tools = JsonValue::parse(c.tools);
    const auto chat = ChatTemplate::Parse(kMistralMarkers, "", "");
    const auto answer = ChatAnswer::Of(*chat, *tokenizer, input, prompt);
    EXPECT_EQ(FieldOf(answer.status()), c.field) << answer.status();
    EXPECT_THAT(answer.status().message(), HasSubstr(c.found));
  }
  // Unknown members are allowed: the template may read them.
  EXPECT_TRUE(AnswerOf(kMistralMarkers, *tokenizer, HiWith(R"([{"type": "function", "function":
      {"name": "f", "return": {}}, "cost": 1}])"))
                  .ok());
}

TEST(AssistantMessage, HoldsReasoningContentAndCalls) {
  AnswerDelta answer{.content = "Hi"};
  EXPECT_EQ(AssistantMessage(answer).dump(), R"({"role":"assistant","content":"Hi"})");
  answer = {.reasoning = "So.",
            .calls = {{.name = "f", .arguments = "{\"a\": 1}"},
                      {.index = 1, .name = "g", .arguments = "{\"b\": "}}};
  EXPECT_EQ(
      AssistantMessage(answer).dump(),
      R"({"role":"assistant","content":"","reasoning_content":"So.","tool_calls":[)"
      R"({"id":"call00000","type":"function","function":{"name":"f","arguments":{"a":1}}},)"
      R"({"id":"call00001","type":"function","function":{"name":"g","arguments":"{\"b\": "}}]})");
}

}  // namespace
}  // namespace tandem
