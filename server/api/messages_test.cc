// POST /v1/messages.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/api/api_request.h"
#include "server/server_testing.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = SortedJson;

// Writes every part of a conversation.
constexpr char kTemplate[] =
    "{{ tools | tojson if tools }}{% for m in messages %}[{{ m.role }}"
    "{{ ' ' ~ m.name if m.name }}{{ ' ' ~ m.tool_call_id if m.tool_call_id }}]"
    "{{ '<think>' ~ m.reasoning_content ~ '</think>' if m.reasoning_content }}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>"
    "{% endfor %}{% endfor %}{{ '[assistant]' if add_generation_prompt }}"
    "{{ '<think></think>' if enable_thinking is false }}";

const ServedModel& MessagesModel() {
  static const ServedModel& model = *new ServedModel(TestServedModel(kTemplate));
  return model;
}

absl::StatusOr<ApiRequest> ParseMessages(const std::string& fields,
                                         const ServedModel& model = MessagesModel()) {
  return ParseMessagesRequest(absl::StrCat("{\"max_tokens\": 9, ", fields, "}"), model,
                              absl::UnixEpoch());
}

std::string PromptOf(const std::string& fields) {
  const auto request = ParseMessages(fields);
  if (!request.ok()) return std::string(request.status().message());
  return MessagesModel().tokenizer->Decode(request->prompts.front());
}

constexpr char kHi[] = R"("messages": [{"role": "user", "content": "Hi"}])";

TEST(Messages, BecomeChats) {
  EXPECT_EQ(PromptOf(kHi), "[user]Hi[assistant]");
  EXPECT_EQ(PromptOf(absl::StrCat(R"("system": "Be brief", )", kHi)),
            "[system]Be brief[user]Hi[assistant]");
  EXPECT_EQ(PromptOf(R"("system": [{"type": "text", "text": "a", "cache_control":
                          {"type": "ephemeral"}}, {"type": "text", "text": "b"}],
                        "messages": [
                          {"role": "user", "content": [{"type": "text", "text": "c"},
                                                       {"type": "text", "text": "d"}]},
                          {"role": "user", "content": "e"}])"),
            "[system]a\nb[user]c\nd\ne[assistant]");
  // A last message of the assistant is continued.
  EXPECT_EQ(PromptOf(R"("messages": [{"role": "user", "content": "Hi"},
                                     {"role": "assistant", "content": "It"}])"),
            "[user]Hi[assistant]It");
}

TEST(Messages, KeepThinkingCallsAndResults) {
  EXPECT_EQ(PromptOf(R"("messages": [{"role": "user", "content": "Hi"},
      {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "So.", "signature": "x"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "text", "text": "Look", "citations": null},
        {"type": "tool_use", "id": "t1", "name": "f", "input": {"b": 1, "a": 2}},
        {"type": "tool_use", "id": "t2", "name": "g", "input": {}}]},
      {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "t2", "content": "warm", "is_error": false},
        {"type": "tool_result", "tool_use_id": "t1",
         "content": [{"type": "text", "text": "1"}, {"type": "text", "text": "2"}]},
        {"type": "text", "text": "Go on"}]}])"),
            "[user]Hi[assistant]<think>So.</think>Look"
            "<tool_call>{\"name\": \"f\", \"arguments\": {\"b\": 1, \"a\": 2}}</tool_call>"
            "<tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call>"
            "[tool g t2]warm[tool f t1]1\n2[user]Go on[assistant]");
}

TEST(Messages, DescribeTools) {
  const std::string tools = R"(, "tools": [{"name": "f", "description": "d", "cache_control": null,
      "input_schema": {"type": "object", "properties": {"a": {"type": "string"}}}},
      {"type": "custom", "name": "g", "input_schema": {"type": "object"}}])";
  EXPECT_THAT(PromptOf(kHi + tools),
              HasSubstr(R"({"type": "function", "function": {"name": "f", "description": "d", )"
                        R"("parameters": {"type": "object")"));
  const auto request = ParseMessages(kHi + tools);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->reading.tools->functions.size(), 2u);
  EXPECT_TRUE(request->reading.tools->parallel);
  const auto chosen = [&](const std::string& choice) {
    return ParseMessages(absl::StrCat(kHi, tools, ", \"tool_choice\": ", choice));
  };
  EXPECT_FALSE(
      chosen(R"({"type": "auto", "disable_parallel_tool_use": true})")->reading.tools->parallel);
  EXPECT_TRUE(chosen(R"({"type": "any"})")->reading.tools->must_call);
  EXPECT_TRUE(chosen(R"({"type": "tool", "name": "g"})")->reading.tools->must_call);
  EXPECT_FALSE(chosen(R"({"type": "none"})")->reading.tools.has_value());
  ExpectRefusal(chosen(R"({"type": "tool", "name": "h"})"), "tool_choice.name", "\"h\"");
  ExpectRefusal(chosen(R"({"type": "most"})"), "tool_choice.type", "one of auto, any, tool, none");
}

TEST(Messages, LimitThinking) {
  const auto thinking = [](const std::string& object) {
    return ParseMessages(absl::StrCat(kHi, ", \"thinking\": ", object));
  };
  const auto enabled = thinking(R"({"type": "enabled", "budget_tokens": 2048})");
  ASSERT_TRUE(enabled.ok()) << enabled.status();
  EXPECT_EQ(enabled->request.thinking_budget->max_tokens, 2048);
  EXPECT_TRUE(enabled->reading.reasoning->is_shown);
  EXPECT_FALSE(thinking(R"({"type": "enabled", "budget_tokens": 9, "display": "omitted"})")
                   ->reading.reasoning->is_shown);
  EXPECT_FALSE(ParseMessages(kHi)->request.thinking_budget.has_value());
  EXPECT_FALSE(thinking(R"({"type": "adaptive"})")->request.thinking_budget.has_value());
  EXPECT_EQ(PromptOf(absl::StrCat(kHi, R"(, "thinking": {"type": "disabled"})")),
            "[user]Hi[assistant]<think></think>");
  ExpectRefusal(thinking(R"({"type": "enabled"})"), "thinking.budget_tokens", "is required");
  ExpectRefusal(thinking(R"({"type": "enabled", "budget_tokens": -1})"), "thinking.budget_tokens",
                "thinking.budget_tokens: must be at least 0, got -1");
  ExpectRefusal(thinking(R"({"type": "on"})"), "thinking.type", "one of enabled, disabled");
  const ServedModel plain = TestServedModel("{{ messages[-1].content }}");
  ExpectRefusal(
      ParseMessages(absl::StrCat(kHi, R"(, "thinking": {"type": "enabled", "budget_tokens": 9})"),
                    plain),
      "thinking.budget_tokens", "no markers of reasoning");
  EXPECT_TRUE(
      ParseMessages(absl::StrCat(kHi, R"(, "thinking": {"type": "disabled"})"), plain).ok());
}

TEST(Messages, TakeSamplingStopsAndFieldsWithoutEffect) {
  const auto request = ParseMessages(
      absl::StrCat(kHi, R"(, "model": "story", "temperature": 0.5, "top_k": 3, "top_p": 0.9,
              "stop_sequences": ["x", "yz"], "metadata": {"user_id": "u"}, "service_tier": "auto",
              "container": null, "mcp_servers": [], "speculation": {"draft_tokens": 0},
              "some_field": 1)"));
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->request.sampling.temperature, 0.5f);
  EXPECT_EQ(request->request.sampling.top_k, 3);
  EXPECT_THAT(request->request.stop, ElementsAre("x", "yz"));
  EXPECT_EQ(request->request.max_tokens, 9);
  EXPECT_THAT(request->ignored.names(), ElementsAre("some_field"));
}

TEST(Messages, NameInvalidFields) {
  const struct {
    const char* fields;
    const char* field;
    const char* part;
  } cases[] = {
      {R"("x": 1)", "messages", "is required"},
      {R"("messages": [])", "messages", "[]"},
      {R"("messages": [5])", "messages[0]", "5"},
      {R"("messages": [{"role": "system", "content": "x"}])", "messages[0].role",
       "one of user, assistant"},
      {R"("messages": [{"role": "user"}])", "messages[0].content", "is required"},
      {R"("messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}])",
       "messages[0].content[0].type", "\"image\" is not supported, allowed: text, tool_result"},
      {R"("messages": [{"role": "user", "content": [{"type": "text"}]}])",
       "messages[0].content[0].text", "is required"},
      {R"("messages": [{"role": "user", "content": [
           {"type": "tool_result", "tool_use_id": "t"}]}])",
       "messages[0].content[0].tool_use_id", "\"t\""},
      {R"("messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "t"}]}])",
       "messages[0].content[0].name", "the name of a tool"},
      {R"("messages": [{"role": "assistant", "content": [
          {"type": "tool_use", "id": "t", "name": "f", "input": "x"}]}])",
       "messages[0].content[0].input", "an object"},
      {R"("system": 5, "messages": [{"role": "user", "content": "x"}])", "system", "5"},
      {R"("tools": [{"type": "web_search_20250305", "name": "w"}], "messages": [
          {"role": "user", "content": "x"}])",
       "tools[0].type", "web_search"},
      {R"("tools": [{"name": "a b"}], "messages": [{"role": "user", "content": "x"}])",
       "tools[0].name", "a b"},
      {R"("tools": [{"name": "f", "input_schema": 5}], "messages": [
          {"role": "user", "content": "x"}])",
       "tools[0].input_schema", "5"},
      {R"("stop_sequences": "x", "messages": [{"role": "user", "content": "x"}])", "stop_sequences",
       "a list of strings"},
      {R"("stop_sequences": [""], "messages": [{"role": "user", "content": "x"}])",
       "stop_sequences", "not empty"},
      {R"("temperature": -1, "messages": [{"role": "user", "content": "x"}])", "temperature", "-1"},
      {R"("n": 2, "messages": [{"role": "user", "content": "x"}])", "n", "2"},
      {R"("model": "other", "messages": [{"role": "user", "content": "x"}])", "model", "other"}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.fields);
    ExpectRefusal(ParseMessages(c.fields), c.field, c.part);
  }
  ExpectRefusal(
      ParseMessagesRequest(absl::StrCat("{", kHi, "}"), MessagesModel(), absl::UnixEpoch()),
      "max_tokens", "is required");
  ExpectRefusal(ParseMessagesRequest(absl::StrCat("{\"max_tokens\": 5000, ", kHi, "}"),
                                     MessagesModel(), absl::UnixEpoch()),
                "max_tokens", "5000");
}

// ---- Answers ----

using MessagesAnswers = ServerTest;

std::string Body(const std::string& fields = "") {
  return absl::StrCat("{\"max_tokens\": 9, ", kHi, fields, "}");
}

constexpr char kTools[] = R"(, "tools": [{"name": "f", "input_schema": {"type": "object"}}])";
constexpr char kThinkingAnswer[] =
    "<think>So.</think>Look <tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>";

TEST_F(MessagesAnswers, HaveBlocksInOrder) {
  StartWithTemplate(kTemplate);
  const Json message = Json::parse(AnswerTo("/v1/messages", Body(kTools), {kThinkingAnswer}));
  EXPECT_EQ(message["type"], "message");
  EXPECT_EQ(message["role"], "assistant");
  EXPECT_EQ(message["model"], "story");
  EXPECT_THAT(message["id"].get<std::string>(), testing::StartsWith("msg_"));
  EXPECT_EQ(message["stop_reason"], "tool_use");
  EXPECT_EQ(message["stop_sequence"], nullptr);
  EXPECT_EQ(message["usage"]["input_tokens"], 1);
  EXPECT_EQ(message["usage"]["cache_read_input_tokens"], 0);
  ASSERT_EQ(message["content"].size(), 3u) << message;
  EXPECT_EQ(message["content"][0]["thinking"], "So.");
  EXPECT_EQ(message["content"][0]["signature"].get<std::string>().size(), 44u);
  EXPECT_EQ(message["content"][1], Json({{"type", "text"}, {"text", "Look"}}));
  EXPECT_EQ(message["content"][2]["name"], "f");
  EXPECT_EQ(message["content"][2]["input"], Json({{"a", 1}}));
  // The client sends the blocks back.
  const Json next = {{"max_tokens", 9},
                     {"messages",
                      {{{"role", "user"}, {"content", "Hi"}},
                       {{"role", "assistant"}, {"content", message["content"]}},
                       {{"role", "user"},
                        {"content",
                         {{{"type", "tool_result"},
                           {"tool_use_id", message["content"][2]["id"]},
                           {"content", "warm"}}}}}}}};
  EXPECT_TRUE(ParseMessagesRequest(next.dump(), MessagesModel(), absl::UnixEpoch()).ok());
}

TEST_F(MessagesAnswers, SayWhyTheyEnded) {
  StartWithTemplate(kTemplate);
  EXPECT_EQ(Json::parse(AnswerTo("/v1/messages", Body(), {"Hi"}))["stop_reason"], "end_turn");
  const Json cut = Json::parse(AnswerTo("/v1/messages", Body(), {"Hi"}, FinishReason::kLength));
  EXPECT_EQ(cut["stop_reason"], "max_tokens");
  EXPECT_EQ(Json::parse(AnswerTo("/v1/messages", Body(), {}))["content"], Json::array());
}

TEST_F(MessagesAnswers, StreamBlocks) {
  StartWithTemplate(kTemplate);
  const std::string text = kThinkingAnswer;
  const std::string body = Body(absl::StrCat(kTools, ", \"stream\": true"));
  const auto events = NamedEventsOf(
      AnswerTo("/v1/messages", body, {text.substr(0, 9), text.substr(9, 60), text.substr(69)}));
  std::vector<std::string> types;
  std::vector<Json> blocks;
  for (const auto& [type, data] : events) {
    EXPECT_EQ(data["type"], type);
    if (types.empty() || type != "content_block_delta" || types.back() != type) {
      types.push_back(type);
    }
    if (type == "content_block_start") {
      EXPECT_EQ(data["index"], blocks.size());
      blocks.push_back(data["content_block"]);
    } else if (type == "content_block_delta") {
      ASSERT_EQ(data["index"].get<size_t>() + 1, blocks.size());
      for (const auto& [name, part] : data["delta"].items()) {
        if (name == "type") continue;
        Json& whole = blocks.back()[name == "partial_json" ? "json" : name];
        whole = (whole.is_null() ? "" : whole.get<std::string>()) + part.get<std::string>();
      }
    }
  }
  EXPECT_THAT(types,
              ElementsAre("message_start", "ping", "content_block_start", "content_block_delta",
                          "content_block_stop", "content_block_start", "content_block_delta",
                          "content_block_stop", "content_block_start", "content_block_delta",
                          "content_block_stop", "message_delta", "message_stop"));
  ASSERT_EQ(blocks.size(), 3u);
  EXPECT_EQ(blocks[0]["thinking"], "So.");
  EXPECT_EQ(blocks[0]["signature"].get<std::string>().size(), 44u);
  EXPECT_EQ(blocks[1]["text"], "Look");
  EXPECT_EQ(blocks[2]["input"], Json::object());
  EXPECT_EQ(Json::parse(blocks[2]["json"].get<std::string>()), Json({{"a", 1}}));
  const Json& start = events[0].second["message"];
  EXPECT_EQ(start["content"], Json::array());
  EXPECT_EQ(start["stop_reason"], nullptr);
  const Json& delta = events[events.size() - 2].second;
  EXPECT_EQ(delta["delta"]["stop_reason"], "tool_use");
  EXPECT_EQ(delta["usage"]["input_tokens"], 1);
  EXPECT_TRUE(delta.contains("speculation"));
}

TEST_F(MessagesAnswers, HaveErrorsInAnthropicsForm) {
  options_.service.api_key = "key";
  StartWithTemplate(kTemplate);
  const auto type_of = [](const Answer& answer) {
    EXPECT_EQ(answer.json()["type"], "error") << answer.body;
    return answer.error("type");
  };
  const std::string with_key = "x-api-key: key\r\nanthropic-version: 2023-06-01\r\n";
  const Answer missing = Ask("POST", "/v1/messages", Body());
  EXPECT_EQ(missing.status, 401);
  EXPECT_EQ(type_of(missing), "authentication_error");
  EXPECT_EQ(Ask("POST", "/v1/messages", Body(), "x-api-key: other\r\n").status, 401);
  const Answer invalid = Ask("POST", "/v1/messages", "{}", with_key);
  EXPECT_EQ(invalid.status, 400);
  EXPECT_EQ(type_of(invalid), "invalid_request_error");
  EXPECT_THAT(invalid.error("message"), HasSubstr("messages: is required"));
  const Answer other = Ask("POST", "/v1/messages", Body(R"(, "model": "other")"), with_key);
  EXPECT_EQ(other.status, 404);
  EXPECT_EQ(type_of(other), "not_found_error");
  const Answer large =
      Ask("POST", "/v1/messages", "", absl::StrCat(with_key, "Content-Length: 99999999\r\n"));
  EXPECT_EQ(large.status, 413);
  EXPECT_EQ(type_of(large), "request_too_large");
  EXPECT_EQ(Ask("GET", "/v1/models", "", "x-api-key: key\r\n").status, 200);
}

TEST_F(MessagesAnswers, StreamErrors) {
  StartWithTemplate(kTemplate);
  Client client(server_->port(), "/v1/messages", Body(R"(, "stream": true)"));
  engine_.Emit(1, "Once");
  client.ReadUntil("Once");
  engine_.Fail(1, absl::InternalError("broken"));
  const std::string end = client.ReadUntil("0\r\n\r\n");
  EXPECT_THAT(end, HasSubstr("event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":"
                             "\"api_error\",\"message\":\"broken\"}}\n\n"));
}

TEST_F(MessagesAnswers, CountTokens) {
  StartWithTemplate(kTemplate);
  const Answer answer = Ask("POST", "/v1/messages/count_tokens", absl::StrCat("{", kHi, "}"));
  EXPECT_EQ(answer.status, 200) << answer.body;
  const size_t count = ParseMessages(kHi)->prompts.front().size();
  EXPECT_EQ(answer.json(), Json({{"input_tokens", count}}));
  EXPECT_EQ(Ask("POST", "/v1/messages/count_tokens", "{}").json()["error"]["type"],
            "invalid_request_error");
}

}  // namespace
}  // namespace tandem
