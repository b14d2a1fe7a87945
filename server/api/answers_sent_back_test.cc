// Everything that the server answers can be sent back to it, unchanged, even if it is strict.
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/api/api_request.h"
#include "server/server_testing.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using Json = SortedJson;

constexpr char kPrinting[] =
    "{{ messages | tojson }}{{ '<think>' if opens }}{{ '<tool_call>' if false }}"
    "{{ tools | tojson if false }}";
constexpr char kNested[] = R"(, "tools": [{"type": "function", "function": {"name": "f"}}])";
constexpr char kFlat[] = R"(, "tools": [{"type": "function", "name": "f"}])";

struct Said {
  std::vector<std::string> pieces;
  FinishReason reason = FinishReason::kStop;
};
const std::vector<Said>& AllKinds() {
  const std::string call = R"(<tool_call>{"name": "f", "arguments": )";
  static const auto* const kinds = new std::vector<Said>{
      {{"Hi, ", "\x01\"caf\xc3\xa9\"\\"}},
      {{}},
      {{}, FinishReason::kLength},
      {{"<think>So", ".</think>", "Hi.", call + "{\"z", "\": 1}}</tool_call>\n", call + "{}}"}},
      {{"<think>So"}, FinishReason::kLength},
      {{"Hi.", call + "{\"z"}, FinishReason::kLength},
      {{"<think>So.</think>", call + "{"}, FinishReason::kLength},
      {{call + R"({"z": 1, "z": [2]}}</tool_call>)"}},
      {{call + std::string(70, '[')}, FinishReason::kLength}};
  return *kinds;
}

// Joins the chunks of a stream as clients do, which keep the index of calls.
Json Joined(const std::vector<Json>& events) {
  Json message = {{"role", "assistant"}, {"content", nullptr}};
  const auto append = [](Json* to, const Json& text) {
    *to = (to->is_null() ? "" : to->get<std::string>()) + text.get<std::string>();
  };
  for (const Json& event : events) {
    const Json& delta = event["choices"][0]["delta"];
    for (const char* name : {"content", "reasoning_content"}) {
      if (delta.contains(name)) append(&message[name], delta[name]);
    }
    for (const Json& part : delta.value("tool_calls", Json::array())) {
      Json& call = message["tool_calls"][part["index"].get<size_t>()];
      Json arguments = call["function"]["arguments"];
      append(&arguments, part["function"]["arguments"]);
      call.merge_patch(part);
      call["function"]["arguments"] = arguments;
    }
  }
  return message;
}

class AnswersSentBack : public ServerTest {
 protected:
  AnswersSentBack() { options_.service.strict_requests = true; }

  // Expects that the message may be part of a chat, and returns the prompt.
  std::string PromptWith(const Json& message) {
    const Json body = {
        {"messages",
         {{{"role", "user"}, {"content", "A"}}, message, {{"role", "user"}, {"content", "B"}}}}};
    const Answer rendered = Ask("POST", "/v1/chat/completions/render", body.dump());
    EXPECT_EQ(rendered.status, 200) << rendered.body;
    const Answer tokens = Ask("POST", "/tokenize", body.dump());
    EXPECT_EQ(tokens.status, 200) << tokens.body;
    EXPECT_EQ(tokens.json()["tokens"], rendered.json()["token_ids"]);
    ExpectItems(body["messages"]);
    const Answer text =
        Ask("POST", "/detokenize", Json{{"tokens", tokens.json()["tokens"]}}.dump());
    return text.json()["prompt"];
  }

  static void ExpectItems(const Json& items) {
    ServedModel model = TestServedModel(kPrinting);
    model.is_strict = true;
    const auto next =
        ParseResponsesRequest(Json{{"input", items}}.dump(), model, absl::UnixEpoch());
    EXPECT_TRUE(next.ok()) << next.status() << items;
  }
};

TEST_F(AnswersSentBack, AreAccepted) {
  StartWithTemplate(kPrinting);
  const std::string chat =
      absl::StrCat(R"({"messages": [{"role": "user", "content": "A"}])", kNested);
  const std::string response = absl::StrCat(R"({"input": "A")", kFlat);
  constexpr char kStream[] = R"(, "stream": true})";
  for (const Said& said : AllKinds()) {
    const auto answer = [&](const std::string& path, const std::string& body) {
      return AnswerTo(path, body, said.pieces, said.reason);
    };
    const Json whole =
        Json::parse(answer("/v1/chat/completions", chat + "}"))["choices"][0]["message"];
    const std::string prompt = PromptWith(whole);
    const Json joined = Joined(EventsOf(answer("/v1/chat/completions", chat + kStream)));
    if (whole.contains("tool_calls")) {
      EXPECT_EQ(joined["tool_calls"].size(), whole["tool_calls"].size());
    }
    PromptWith(joined);
    for (const Json& call : whole.value("tool_calls", Json::array())) {
      const std::string arguments = call["function"]["arguments"];
      if (Json::accept(arguments)) continue;
      EXPECT_THAT(prompt, HasSubstr(Json(arguments).dump()));  // as it was sent
    }

    ExpectItems(Json::parse(answer("/v1/responses", response + "}"))["output"]);
    const std::vector<std::string> events =
        absl::StrSplit(answer("/v1/responses", response + kStream), "\n\n", absl::SkipEmpty());
    const std::string last = events.back().substr(events.back().find("data: ") + 6);
    ExpectItems(Json::parse(last)["response"]["output"]);

    const Json choice = Json::parse(answer("/v1/completions", R"({"prompt": "A"})"))["choices"][0];
    for (const char* name : {"text", "token_ids"}) {
      if (choice[name].empty() || choice[name] == "") continue;
      const std::string body = Json{{"prompt", choice[name]}}.dump();
      EXPECT_EQ(Ask("POST", "/v1/completions/render", body).status, 200) << body;
    }
  }
}

TEST_F(AnswersSentBack, ATemplateThatNeedsObjectsNamesTheMessage) {
  constexpr char kItems[] =
      "{% if messages | length == 1 and messages[0].tool_calls %}{{ raise_exception('Alone') }}"
      "{% endif %}{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}{{ "
      "c.function.name }}"
      "{% for key, value in c.function.arguments | items %}{{ key }}={{ value }}{% endfor %}"
      "{% endfor %}{% endfor %}{{ tools | tojson if false }}";
  StartWithTemplate(kItems);
  const auto chat = [](const std::string& arguments) {
    const Json call = {{"id", "1"}, {"function", {{"name", "f"}, {"arguments", arguments}}}};
    const Json whole = {{"id", "0"}, {"function", {{"name", "f"}, {"arguments", "{\"a\": 1}"}}}};
    return Json{{"messages",
                 {{{"role", "system"}, {"content", "S"}},
                  {{"role", "user"}, {"content", "A"}},
                  {{"role", "assistant"}, {"tool_calls", {whole, call}}}}}}
        .dump();
  };
  for (const char* path : {"/v1/chat/completions", "/v1/chat/completions/render", "/tokenize"}) {
    for (const char* arguments : {"{\"z", "[1]", "{\"a\": 1, \"a\": 2}"}) {
      const Answer answer = Ask("POST", path, chat(arguments));
      EXPECT_EQ(answer.status, 400);
      EXPECT_EQ(answer.error("param"), "messages[2].tool_calls[1].function.arguments") << path;
      EXPECT_THAT(answer.error("message"), HasSubstr("is not a JSON object"));
    }
  }
  EXPECT_EQ(Ask("POST", "/tokenize", chat("{\"z\": 1}")).status, 200);
  const Answer item = Ask("POST", "/v1/responses",
                          R"({"instructions": "I", "input": [{"role": "user", "content": "A"},
          {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{\"z"}]})");
  EXPECT_EQ(item.error("param"), "input[1].arguments") << item.body;
  // A template that fails for another reason says so.
  const Answer other = Ask("POST", "/tokenize", R"({"messages": [{"role": "assistant",
      "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}]})");
  EXPECT_EQ(other.error("param"), "messages");
  EXPECT_THAT(other.error("message"), HasSubstr("Alone"));
}

}  // namespace
}  // namespace tandem
