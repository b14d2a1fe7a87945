// POST /v1/responses.
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/api/api_request.h"
#include "server/server_testing.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = SortedJson;

const ServedModel& ResponsesModel() {
  static const ServedModel& model = *new ServedModel(TestServedModel());
  return model;
}

absl::StatusOr<ApiRequest> ParseResponses(const std::string& body) {
  return ParseResponsesRequest(body, ResponsesModel(), absl::UnixEpoch());
}

absl::StatusOr<ApiRequest> ParseSameChat(const std::string& messages) {
  return ChatWith("", ResponsesModel(), messages);
}

using Responses = ServerTest;

TEST_F(Responses, AreEncodedAsChats) {
  const auto text = ParseResponses(R"({"input": "A"})");
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(text->prompts, ParseSameChat(R"([{"role": "user", "content": "A"}])")->prompts);
  const auto items = ParseResponses(R"({"instructions": "Be brief", "input": [
      {"role": "user", "content": "A"},
      {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
       "content": [{"type": "output_text", "text": "B", "annotations": []}]},
      {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "C"}]}]})");
  ASSERT_TRUE(items.ok()) << items.status();
  EXPECT_EQ(items->prompts, ParseSameChat(R"([{"role": "system", "content": "Be brief"},
      {"role": "user", "content": "A"}, {"role": "assistant", "content": "B"},
      {"role": "user", "content": "C"}])")
                                ->prompts);
  EXPECT_EQ(ParseResponses(R"({"input": "A", "max_output_tokens": 5})")->request.max_tokens, 5);
}

TEST_F(Responses, InvalidFieldsAreNamed) {
  const struct {
    const char* body;
    const char* field;
    const char* part;
  } cases[] = {
      {R"({})", "input", "is required"},
      {R"({"input": []})", "input", "[]"},
      {R"({"input": 5})", "input", "5"},
      {R"({"instructions": "x"})", "input", "is required"},
      {R"({"input": [5]})", "input[0]", "5"},
      {R"({"input": [{"role": "user"}]})", "input[0].content", "is required"},
      {R"({"input": [{"type": "item_reference", "id": "x"}]})", "input[0].type", "item_reference"},
      {R"({"input": [{"type": "reasoning", "summary": "x"}]})", "input[0].summary", "list"},
      {R"({"input": [{"type": "reasoning", "content": [{"type": "text"}]}]})",
       "input[0].content[0].type", "reasoning_text"},
      {R"({"input": [{"role": "user", "content": [{"type": "input_image"}]}]})",
       "input[0].content[0].type", "input_image"},
      {R"({"input": [{"type": "function_call", "call_id": "1", "name": "f", "arguments": 1}]})",
       "input[0].arguments", "JSON"},
      {R"({"input": [{"type": "function_call", "call_id": "1", "arguments": "{}"}]})",
       "input[0].name", "name of a function"},
      {R"({"input": [{"type": "function_call_output", "call_id": "1"}]})", "input[0].output",
       "is required"},
      {R"({"input": "A", "previous_response_id": "resp_1"})", "previous_response_id",
       "nothing is stored"},
      {R"({"input": "A", "background": true})", "background", "true"},
      {R"({"input": "A", "tools": [{"type": "web_search"}]})", "tools[0].type", "web_search"},
      {R"({"input": "A", "tools": [{"type": "function"}]})", "tools[0].name", "64"},
      {R"({"input": "A", "tools": [{"type": "function", "name": "f", "parameters": []}]})",
       "tools[0].parameters", "[]"},
      {R"({"input": "A", "tool_choice": "required"})", "tool_choice", "without tools"},
      {R"({"input": "A", "tool_choice": {"type": "function", "name": "f"}})", "tool_choice.name",
       "one of the tools"},
      {R"({"input": "A", "include": ["message.output_text.logprobs"]})", "include", "logprobs"},
      {R"({"input": "A", "text": {"format": {"type": "xml"}}})", "text.format.type", "xml"},
      {R"({"input": "A", "max_output_tokens": 0})", "max_output_tokens", "0"},
      {R"({"input": "A", "max_output_tokens": 5000})", "max_output_tokens", "5000"}};
  for (const auto& c : cases) {
    ExpectRefusal(ParseResponses(c.body), c.field, c.part);
  }
}

TEST_F(Responses, AcceptNeutralValues) {
  const auto request = ParseResponses(
      R"({"input": "A", "store": true, "background": false, "include": [], "tools": [],
          "tool_choice": "auto", "truncation": "disabled", "text": {"format": {"type": "text"}},
          "reasoning": {"effort": "low", "summary": "auto"}, "metadata": {"a": "b"},
          "previous_response_id": null, "wait": 1})");
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_THAT(request->ignored.names(), ElementsAre("wait"));
}

TEST_F(Responses, AnswerWithoutStreaming) {
  Start();
  Client client(server_->port(), "/v1/responses",
                R"({"input": "A", "instructions": "I", "metadata": {"a": "b"}})");
  engine_.Emit(1, "Once");
  engine_.End(1);
  const Json answer = client.Read().json();
  EXPECT_EQ(answer["object"], "response");
  EXPECT_EQ(answer["status"], "completed");
  EXPECT_EQ(answer["output"][0]["content"][0]["text"], "Once");
  EXPECT_EQ(answer["output"][0]["role"], "assistant");
  EXPECT_EQ(answer["instructions"], "I");
  EXPECT_EQ(answer["metadata"], Json({{"a", "b"}}));
  EXPECT_EQ(answer["store"], false);
  EXPECT_EQ(answer["usage"]["input_tokens"], 1);
  client.SendRequest("POST", "/v1/responses", R"({"input": "A"})");
  engine_.End(2, FinishReason::kLength);
  const Json cut = client.Read().json();
  EXPECT_EQ(cut["status"], "incomplete");
  EXPECT_EQ(cut["incomplete_details"]["reason"], "max_output_tokens");
}

TEST_F(Responses, StreamEvents) {
  Start();
  Client client(server_->port(), "/v1/responses", R"({"input": "A", "stream": true})");
  engine_.Emit(1, "Once ");
  engine_.Emit(1, "upon");
  engine_.End(1);
  const auto events = NamedEventsOf(client.Read().body);
  std::vector<std::string> types;
  std::string text;
  for (size_t i = 0; i < events.size(); ++i) {
    const auto& [type, data] = events[i];
    types.push_back(type);
    EXPECT_EQ(data["type"], type);
    EXPECT_EQ(data["sequence_number"], i);
    if (type == "response.output_text.delta") text += data["delta"].get<std::string>();
  }
  EXPECT_EQ(text, "Once upon");
  EXPECT_THAT(types, ElementsAre("response.created", "response.in_progress",
                                 "response.output_item.added", "response.content_part.added",
                                 "response.output_text.delta", "response.output_text.delta",
                                 "response.output_text.done", "response.content_part.done",
                                 "response.output_item.done", "response.completed"));
  const Json& last = events.back().second["response"];
  EXPECT_EQ(last["output"][0]["content"][0]["text"], text);
  EXPECT_EQ(last["id"], events[0].second["response"]["id"]);
  EXPECT_EQ(last["output"][0]["id"], events[4].second["item_id"]);
}

TEST_F(Responses, StreamErrors) {
  Start();
  Client client(server_->port(), "/v1/responses", R"({"input": "A", "stream": true})");
  engine_.Emit(1, "Once");
  client.ReadUntil("Once");
  engine_.Fail(1, absl::InternalError("broken"));
  const std::string end = client.ReadUntil("0\r\n\r\n");
  EXPECT_THAT(end, HasSubstr("event: error\n"));
  EXPECT_THAT(end, HasSubstr("broken"));
  EXPECT_THAT(end, HasSubstr("event: response.failed\n"));
  EXPECT_EQ(Ask("GET", "/v1/responses/resp_1").error("code"), "not_served");
}

}  // namespace
}  // namespace tandem
