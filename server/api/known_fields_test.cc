// Every field that some endpoint or engine knows is served, refused by name, or without effect.
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/api/field_groups.h"
#include "server/api/token_endpoints.h"
#include "server/server_testing.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Endpoint {
  const char* path;
  const char* begin;  // of an accepted request
  unsigned effects;   // that matter to it

  // Returns the fields that were ignored and reported.
  absl::StatusOr<std::vector<std::string>> Ask(const std::string& field, const std::string& value,
                                               bool is_strict = false) const {
    static ServedModel& model = *new ServedModel(TestServedModel());
    model.is_strict = is_strict;
    const std::string body = absl::StrCat(begin, ", \"", field, "\": ", value, "}");
    const absl::string_view name = path;
    if (name == "/tokenize" || name == "/detokenize") {
      IgnoredFields ignored;
      const absl::Status status =
          name == "/tokenize" ? TokenizeBody(body, model, absl::UnixEpoch(), &ignored).status()
                              : DetokenizeBody(body, model, &ignored).status();
      if (!status.ok()) return status;
      return ignored.names();
    }
    const auto request = name == "/v1/completions" ? ParseCompletionRequest(body, model)
                         : name == "/v1/responses"
                             ? ParseResponsesRequest(body, model, absl::UnixEpoch())
                             : ParseChatRequest(body, model, absl::UnixEpoch());
    if (!request.ok()) return request.status();
    return request->ignored.names();
  }

  // Returns the fields that it reads, from "..., allowed: a, b, c".
  std::set<std::string> Served() const {
    const std::string message(Ask("no_such_field", "1", true).status().message());
    const size_t begin = message.find("allowed: ");
    EXPECT_NE(begin, std::string::npos) << message;
    return absl::StrSplit(message.substr(begin + 9), ", ");
  }

  void ExpectRefusalOf(const std::string& field, const std::string& value,
                       const std::string& part) const {
    const auto answer = Ask(field, value);
    ASSERT_FALSE(answer.ok()) << path << " " << field;
    EXPECT_EQ(FieldOf(answer.status()), field);
    EXPECT_THAT(std::string(answer.status().message()), HasSubstr(part)) << path;
  }
};

constexpr char kChat[] = R"({"messages": [{"role": "user", "content": "A"}])";
constexpr Endpoint kCompletions = {"/v1/completions", R"({"prompt": "A")", kOnPrompt | kOnAnswer};
constexpr Endpoint kChats = {"/v1/chat/completions", kChat, kOnPrompt | kOnAnswer};
constexpr Endpoint kResponses = {"/v1/responses", R"({"input": "A")", kOnPrompt | kOnAnswer};
constexpr Endpoint kEndpoints[] = {kCompletions,
                                   kChats,
                                   kResponses,
                                   {"/tokenize", R"({"prompt": "A")", kOnPrompt},
                                   {"/tokenize", kChat, kOnPrompt},
                                   {"/detokenize", R"({"tokens": [5])", kOnDecoding}};

TEST(KnownFields, IncludeEveryFieldOfEveryEndpointOnce) {
  std::set<std::string> names;
  for (const KnownField& field : KnownFields()) EXPECT_TRUE(names.insert(field.name).second);
  for (const Endpoint& endpoint : kEndpoints) {
    for (const std::string& name : endpoint.Served()) {
      EXPECT_TRUE(names.contains(name)) << endpoint.path << " reads " << name;
    }
  }
}

TEST(KnownFields, AreServedOrRefusedOrWithoutEffect) {
  for (const Endpoint& endpoint : kEndpoints) {
    const std::set<std::string> served = endpoint.Served();
    for (const KnownField& field : KnownFields()) {
      const bool makes_it_a_chat = field.name == std::string("messages");
      if (served.contains(field.name) || (makes_it_a_chat && endpoint.effects == kOnPrompt))
        continue;
      std::vector<std::string> neutral = {"null", "\"\"", "[]"};
      for (const auto& value : JsonValue::parse(absl::StrCat("[", field.neutral, "]"))) {
        neutral.push_back(value.dump());
      }
      const std::string asks = R"({"something": 1})";
      const bool matters = (field.effect & endpoint.effects) != 0;
      if (!matters) neutral.push_back(asks);
      for (const std::string& value : neutral) {
        const auto ignored = endpoint.Ask(field.name, value);
        ASSERT_TRUE(ignored.ok()) << endpoint.path << " " << value << ignored.status();
        EXPECT_THAT(*ignored, IsEmpty()) << endpoint.path;
        EXPECT_TRUE(endpoint.Ask(field.name, value, /*is_strict=*/true).ok()) << field.name;
      }
      if (matters) endpoint.ExpectRefusalOf(field.name, asks, "is not supported, allowed: null");
    }
  }
}

TEST(KnownFields, SayWhichFieldToUse) {
  kResponses.ExpectRefusalOf("max_tokens", "3", "use max_output_tokens");
  kResponses.ExpectRefusalOf("n_predict", "3", "use max_output_tokens");
  kResponses.ExpectRefusalOf("format", "\"json\"", "use text.format");
  kResponses.ExpectRefusalOf("response_format", R"({"type": "json_object"})", "use text.format");
  kResponses.ExpectRefusalOf("functions", "[{}]", "use tools");
  kResponses.ExpectRefusalOf("reasoning_effort", "\"low\"", "use reasoning.effort");
  kChats.ExpectRefusalOf("max_output_tokens", "3", "use max_completion_tokens");
  kChats.ExpectRefusalOf("prompt", "\"B\"", "use messages");
  kChats.ExpectRefusalOf("reasoning", R"({"effort": "low"})", "use reasoning_effort");
  kChats.ExpectRefusalOf("enable_thinking", "false", "use chat_template_kwargs.enable_thinking");
  kCompletions.ExpectRefusalOf("max_thinking_tokens", "9", "is not supported");
  kCompletions.ExpectRefusalOf("thinking_token_budget", "9", "allowed: null, -1");
  kCompletions.ExpectRefusalOf("max_completion_tokens", "3", "use max_tokens");
  kCompletions.ExpectRefusalOf("grammar", "\"root ::= x\"", "use guided_grammar");
  kCompletions.ExpectRefusalOf("drafter", "\"none\"", "use speculation.drafter");
  kCompletions.ExpectRefusalOf("draft_tokens", "2", "use speculation.draft_tokens");
}

TEST(KnownFields, AreRefusedWithinObjects) {
  const auto field_of = [](const absl::Status& status) { return FieldOf(status); };
  EXPECT_EQ(field_of(kResponses.Ask("reasoning", R"({"max_tokens": 9})").status()),
            "reasoning.max_tokens");
  EXPECT_EQ(field_of(kResponses.Ask("stream_options", R"({"include_token_texts": true})").status()),
            "stream_options.include_token_texts");
  EXPECT_EQ(field_of(kResponses.Ask("stream_options", R"({"prompt_progress": true})").status()),
            "stream_options.prompt_progress");
  EXPECT_EQ(
      field_of(
          kChats.Ask("response_format", R"({"type": "json_object", "json_schema": {}})").status()),
      "response_format.json_schema");
  EXPECT_EQ(
      field_of(kResponses.Ask("text", R"({"format": {"type": "text", "schema": {}}})").status()),
      "text.format.schema");
  const Endpoint message = {"/v1/chat/completions",
                            R"({"messages": [{"role": "user", "content": "A", "images": ["x"]}])",
                            kOnPrompt};
  EXPECT_EQ(field_of(message.Ask("n", "1").status()), "messages[0].images");
}

// With `none` the prompt has no functions.
TEST(KnownFields, TokenizeReadsTheChoiceOfTools) {
  const ServedModel model =
      TestServedModel("{{ messages[0].content }}{{ tools | tojson if tools }}");
  const auto tokens = [&](const std::string& fields) {
    IgnoredFields ignored;
    const auto answer =
        TokenizeBody(absl::StrCat(kChat, fields, "}"), model, absl::UnixEpoch(), &ignored);
    return answer.ok() ? answer->body : answer.status().ToString();
  };
  const std::string tools = R"(, "tools": [{"type": "function", "function": {"name": "f"}}])";
  EXPECT_EQ(tokens(tools + R"(, "tool_choice": "none")"), tokens(""));
  EXPECT_EQ(tokens(tools + R"(, "tool_choice": "auto")"), tokens(tools));
  EXPECT_NE(tokens(tools), tokens(""));
}

}  // namespace
}  // namespace tandem
