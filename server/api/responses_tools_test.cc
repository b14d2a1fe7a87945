// POST /v1/responses: reasoning and tool calls are separate items.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/api/api_request.h"
#include "server/server_testing.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using Json = SortedJson;

constexpr char kItemsTemplate[] =
    "{{ messages | tojson }}{{ tools | tojson if tools }}{{ '<think>' if opens }}"
    "{{ '<tool_call>' if false }}";
constexpr char kFlatTools[] = R"("tools": [
    {"type": "function", "name": "f", "description": "d", "strict": null,
     "parameters": {"type": "object", "properties": {"z": {"type": "integer"}}}},
    {"type": "function", "name": "g"}])";

// Returns the messages that the template receives.
Json MessagesOf(const std::string& input) {
  const ServedModel model = TestServedModel(kItemsTemplate);
  const auto request =
      ParseResponsesRequest(absl::StrCat(R"({"input": )", input, "}"), model, absl::UnixEpoch());
  EXPECT_TRUE(request.ok()) << request.status();
  if (!request.ok()) return Json();
  Json messages = Json::parse(model.tokenizer->Decode(request->prompts[0]));
  for (Json& message : messages)
    message.erase("thinking");  // the name of reasoning in some templates
  return messages;
}

TEST(ResponsesItems, ItemsOfOneTurnBecomeOneMessage) {
  const Json messages = MessagesOf(R"([
      {"role": "user", "content": "A"},
      {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": null,
       "content": [{"type": "reasoning_text", "text": "So."}], "status": "completed"},
      {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
       "content": [{"type": "output_text", "text": "B", "annotations": [], "logprobs": []}]},
      {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f",
       "arguments": "{\"z\": 1}", "status": "completed"},
      {"type": "function_call", "call_id": "c2", "name": "g", "arguments": ""},
      {"type": "function_call_output", "call_id": "c1", "output": "one"},
      {"type": "function_call_output", "call_id": "c2",
       "output": [{"type": "input_text", "text": "two"}]},
      {"role": "assistant", "content": "C"}, {"role": "assistant", "content": "D"}])");
  EXPECT_EQ(messages, Json::parse(R"([
      {"role": "user", "content": "A"},
      {"role": "assistant", "content": "B", "reasoning_content": "So.", "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"z": 1}}},
        {"id": "c2", "type": "function", "function": {"name": "g", "arguments": {}}}]},
      {"role": "tool", "content": "one", "tool_call_id": "c1"},
      {"role": "tool", "content": "two", "tool_call_id": "c2"},
      {"role": "assistant", "content": "C"}, {"role": "assistant", "content": "D"}])"));
}

TEST(ResponsesItems, ReasoningJoinsTheNextItem) {
  EXPECT_EQ(MessagesOf(R"([{"role": "user", "content": "A"},
                {"type": "reasoning", "summary": [{"type": "summary_text", "text": "So."}]},
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}])")
                [1]["reasoning_content"],
            "So.");
  // Reasoning that was cut off becomes a turn of its own.
  const Json cut = MessagesOf(R"([{"type": "reasoning", "summary": [],
      "content": [{"type": "reasoning_text", "text": "So"}]}, {"role": "user", "content": "A"}])");
  EXPECT_EQ(cut, Json::parse(R"([{"role": "assistant", "content": "", "reasoning_content": "So"},
                                 {"role": "user", "content": "A"}])"));
}

TEST(ResponsesTools, MatchTheToolsOfChats) {
  const ServedModel model = TestServedModel(kItemsTemplate);
  const auto flat = ParseResponsesRequest(absl::StrCat(R"({"input": "A", )", kFlatTools, "}"),
                                          model, absl::UnixEpoch());
  ASSERT_TRUE(flat.ok()) << flat.status();
  const auto nested = ParseChatRequest(
      R"({"messages": [{"role": "user", "content": "A"}], "tools": [
          {"type": "function", "function": {"name": "f", "description": "d", "strict": null,
           "parameters": {"type": "object", "properties": {"z": {"type": "integer"}}}}},
          {"type": "function", "function": {"name": "g"}}]})",
      model, absl::UnixEpoch());
  ASSERT_TRUE(nested.ok()) << nested.status();
  EXPECT_EQ(flat->prompts, nested->prompts);
  ASSERT_TRUE(flat->reading.tools.has_value());
  EXPECT_EQ(flat->reading.tools->functions.size(), 2u);
  EXPECT_FALSE(flat->request.constraint.has_value());
  const auto named = ParseResponsesRequest(
      absl::StrCat(R"({"input": "A", "tool_choice": {"type": "function", "name": "g"}, )",
                   kFlatTools, "}"),
      model, absl::UnixEpoch());
  ASSERT_TRUE(named.ok()) << named.status();
  EXPECT_EQ(named->constraint_field, "tool_choice");
  const auto strict = ParseResponsesRequest(
      R"({"input": "A", "tools": [{"type": "function", "name": "f", "strict": true}]})", model,
      absl::UnixEpoch());
  ASSERT_TRUE(strict.ok()) << strict.status();
  EXPECT_EQ(strict->constraint_field, "tools[0].strict");
}

class ResponsesAnswers : public ServerTest {
 protected:
  ResponsesAnswers() { StartWithTemplate(kItemsTemplate); }
  std::string AnswerTo(const std::string& fields, const std::vector<std::string>& pieces,
                       FinishReason reason = FinishReason::kStop) {
    return ServerTest::AnswerTo("/v1/responses",
                                absl::StrCat(R"({"input": "A", )", kFlatTools, fields, "}"), pieces,
                                reason);
  }
};

const std::vector<std::string>& ThoughtsAndCalls() {
  static const auto* const pieces =
      new std::vector<std::string>{"<think>\nSo",
                                   ".\n</think>",
                                   "\n\nHi.\n",
                                   "<tool_call>{\"name\": \"f\", \"arguments\": {\"z",
                                   "\": 1}}</tool_call>\n<tool_call>",
                                   "{\"name\": \"g\"}</tool_call>"};
  return *pieces;
}

TEST_F(ResponsesAnswers, ListItemsInOrder) {
  const Json answer = Json::parse(AnswerTo(R"(, "parallel_tool_calls": true)", ThoughtsAndCalls()));
  EXPECT_EQ(answer["status"], "completed");
  const Json& output = answer["output"];
  ASSERT_EQ(output.size(), 4u) << answer;
  EXPECT_EQ(output[0]["type"], "reasoning");
  EXPECT_EQ(output[0]["content"], Json::parse(R"([{"type": "reasoning_text", "text": "So."}])"));
  EXPECT_EQ(output[0]["summary"], Json::array());
  EXPECT_EQ(output[1]["type"], "message");
  EXPECT_EQ(output[1]["content"][0]["text"], "Hi.");
  EXPECT_EQ(output[2]["type"], "function_call");
  EXPECT_EQ(output[2]["name"], "f");
  EXPECT_EQ(output[2]["arguments"], "{\"z\": 1}");
  EXPECT_EQ(output[2]["call_id"].get<std::string>().size(), 9u);
  EXPECT_EQ(output[3]["arguments"], "{}");
  EXPECT_NE(output[2]["call_id"], output[3]["call_id"]);
  for (const Json& item : output) EXPECT_EQ(item["status"], "completed") << item;
  EXPECT_EQ(answer["tools"].size(), 2u);
  EXPECT_EQ(answer["tool_choice"], "auto");
  // An answer can be sent back unchanged, even to a strict server.
  ServedModel model = TestServedModel(kItemsTemplate);
  model.is_strict = true;
  const auto next = ParseResponsesRequest(Json{{"input", output}}.dump(), model, absl::UnixEpoch());
  EXPECT_TRUE(next.ok()) << next.status();
}

TEST_F(ResponsesAnswers, MarkACutItemAsIncomplete) {
  const auto last_of = [](const std::string& body) {
    const Json answer = Json::parse(body);
    EXPECT_EQ(answer["status"], "incomplete");
    return Json(answer["output"].back());
  };
  const Json thought = last_of(AnswerTo("", {"<think>So"}, FinishReason::kLength));
  EXPECT_EQ(thought["type"], "reasoning");
  EXPECT_EQ(thought["status"], "incomplete");
  const Json call = last_of(
      AnswerTo("", {R"(Hi.<tool_call>{"name": "f", "arguments": {"z)"}, FinishReason::kLength));
  EXPECT_EQ(call["arguments"], "{\"z");
  EXPECT_EQ(call["status"], "incomplete");
}

TEST_F(ResponsesAnswers, StreamItemsAsEvents) {
  const std::string body = AnswerTo(R"(, "stream": true)", ThoughtsAndCalls());
  std::vector<std::string> types;
  std::vector<Json> items;               // in the order of their done events
  std::vector<std::string> streamed(4);  // by output_index
  int number = 0;
  for (const absl::string_view event : absl::StrSplit(body, "\n\n", absl::SkipEmpty())) {
    const size_t at = event.find("data: ");
    ASSERT_NE(at, absl::string_view::npos);
    const Json data = Json::parse(event.substr(at + 6));
    EXPECT_EQ(data["sequence_number"], number++);
    types.push_back(data["type"]);
    if (data.contains("delta")) {
      streamed.at(data["output_index"]) += data["delta"].get<std::string>();
    }
    if (types.back() == "response.output_item.added") {
      EXPECT_EQ(data["item"]["status"], "in_progress");
      EXPECT_TRUE(data["item"].value("content", Json::array()).empty());
      EXPECT_EQ(data["item"].value("arguments", ""), "");
    }
    if (types.back() == "response.output_item.done") items.push_back(data["item"]);
    if (types.back() == "response.completed") {
      EXPECT_EQ(data["response"]["output"], Json(items));
    }
  }
  EXPECT_THAT(streamed, ElementsAre("So.", "Hi.", "{\"z\": 1}", "{}"));
  const std::vector<std::string> begins = {"response.created", "response.in_progress"};
  const auto part = [](const std::string& delta, int count, const std::string& done) {
    std::vector<std::string> names = {"response.output_item.added", "response.content_part.added"};
    names.insert(names.end(), count, "response." + delta);
    for (const std::string& name : {"response." + done, std::string("response.content_part.done"),
                                    std::string("response.output_item.done")}) {
      names.push_back(name);
    }
    return names;
  };
  const auto call = [](int count) {
    std::vector<std::string> names = {"response.output_item.added"};
    names.insert(names.end(), count, "response.function_call_arguments.delta");
    names.emplace_back("response.function_call_arguments.done");
    names.emplace_back("response.output_item.done");
    return names;
  };
  std::vector<std::string> all = begins;
  for (const auto& names : {part("reasoning_text.delta", 2, "reasoning_text.done"),
                            part("output_text.delta", 1, "output_text.done"), call(2), call(1)}) {
    all.insert(all.end(), names.begin(), names.end());
  }
  all.emplace_back("response.completed");
  EXPECT_EQ(types, all);
}

TEST_F(ResponsesAnswers, TokenizeIncludesTools) {
  const std::string body = R"({"messages": [{"role": "user", "content": "A"}])";
  const std::string tools = R"([{"type": "function", "function": {"name": "f"}}])";
  const Json without = Ask("POST", "/tokenize", body + "}").json();
  const Json with =
      Ask("POST", "/tokenize", absl::StrCat(body, ", \"tools\": ", tools, "}")).json();
  std::string text;
  for (const Json& token : with["token_strs"]) text += token.get<std::string>();
  EXPECT_EQ(text, R"([{"role": "user", "content": "A"}])" + tools);
  EXPECT_LT(without["count"], with["count"]);
  const Answer wrong = Ask("POST", "/tokenize", body + R"(, "tools": [1]})");
  EXPECT_EQ(wrong.error("param"), "tools[0]");
}

}  // namespace
}  // namespace tandem
