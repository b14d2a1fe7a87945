#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/api/field_groups.h"
#include "server/server_testing.h"
#include "text/constraint/grammar_engine.h"

namespace tandem {
namespace {

using Json = SortedJson;
using testing::HasSubstr;

constexpr char kHermesTemplate[] =
    "{% if tools %}{{ tools | tojson }}{% endif %}{{ messages[0].content }}"
    "{{ '<tool_call>' if false }}";
constexpr char kLlamaTemplate[] =
    "{{ tools }}{{ '<|python_tag|>{\"parameters\": }' if false }}{{ messages[0].content }}";
constexpr char kMistralTemplate[] =
    "{{ tools }}{{ '[TOOL_CALLS]' if false }}{{ messages[0].content }}";
constexpr char kXmlTemplate[] =
    "{{ tools }}{{ '<tool_call><function=f><parameter=a>' if false }}{{ messages[0].content }}";
constexpr char kNamedTemplate[] =
    "{{ tools }}{{ '[TOOL_CALLS]f[ARGS]' if false }}{{ messages[0].content }}";
constexpr char kNamedWithIdsTemplate[] =
    "{{ tools }}{{ '[TOOL_CALLS]f[CALL_ID]i[ARGS]' if false }}{{ messages[0].content }}";
constexpr char kGraniteTemplate[] =
    "{{ tools }}{{ '<|tool_call|>' if false }}{{ messages[0].content }}";
constexpr char kPhiTemplate[] =
    "{{ tools }}{{ '<|tool|><|/tool|>' if false }}{{ messages[0].content }}";
constexpr char kCommandTemplate[] =
    "{{ tools }}{{ '<|START_ACTION|>' if false }}{{ messages[0].content }}";
constexpr char kDeepSeekTemplate[] =
    "{{ tools }}{{ '<\uff5ctool\u2581calls\u2581begin\uff5c>' if false }}{{ messages[0].content }}";
constexpr char kFencedDeepSeekTemplate[] =
    "{{ tools }}{{ '<\uff5ctool\u2581calls\u2581begin\uff5c>```json' if false }}"
    "{{ messages[0].content }}";
constexpr char kTemplateWithoutPlace[] = "{{ messages[0].content }}";
constexpr const char* kAllTemplates[] = {
    kTemplateWithoutPlace, kHermesTemplate,       kLlamaTemplate,    kMistralTemplate,
    kXmlTemplate,          kNamedTemplate,        kGraniteTemplate,  kPhiTemplate,
    kCommandTemplate,      kNamedWithIdsTemplate, kDeepSeekTemplate, kFencedDeepSeekTemplate};
constexpr char kTwoTools[] = R"("tools": [
    {"type": "function", "function": {"name": "f", "description": "d", "parameters":
        {"type": "object", "properties": {"z": {"type": "integer", "minimum": 0, "maximum": 99},
                                         "a": {"type": "boolean"}},
         "required": ["z", "a"], "additionalProperties": false}}},
    {"type": "function", "function": {"name": "g"}}])";

absl::StatusOr<ApiRequest> ToolChat(const std::string& fields, const ServedModel& model) {
  return ChatWith(", " + fields, model);
}
absl::StatusOr<ApiRequest> ToolChat(const std::string& fields,
                                    const char* jinja = kHermesTemplate) {
  return ToolChat(fields, TestServedModel(jinja));
}

TEST(ToolFields, ReachTheTemplateInTheGivenOrder) {
  const ServedModel model = TestServedModel(kHermesTemplate);
  const auto prompt = [&](const std::string& fields) {
    const auto request = ToolChat(fields, model);
    EXPECT_TRUE(request.ok()) << request.status();
    return request.ok() ? model.tokenizer->Decode(request->prompts[0]) : "";
  };
  const std::string tools =
      R"([{"type": "function", "function": {"name": "f", )"
      R"("parameters": {"type": "object", "properties": {"b": {}, "a": {}}}}}])";
  EXPECT_EQ(prompt("\"tools\": " + tools), tools + "A");
  EXPECT_EQ(prompt("\"tool_choice\": \"none\", \"tools\": " + tools), "A");
  EXPECT_EQ(prompt(R"("tools": [], "tool_choice": "auto")"), "A");
}

TEST(ToolFields, SetHowCallsAreFound) {
  const auto request = ToolChat(absl::StrCat(kTwoTools, R"(, "parallel_tool_calls": false)"));
  ASSERT_TRUE(request.ok()) << request.status();
  ASSERT_TRUE(request->reading.tools.has_value());
  ASSERT_EQ(request->reading.tools->functions.size(), 2u);
  EXPECT_EQ(request->reading.tools->functions[1].name, "g");
  EXPECT_FALSE(request->reading.tools->parallel);
  EXPECT_FALSE(request->reading.tools->must_call);
  EXPECT_FALSE(request->request.constraint.has_value());
  EXPECT_FALSE(
      ToolChat(absl::StrCat(kTwoTools, R"(, "tool_choice": "none")"))->reading.tools.has_value());
  EXPECT_EQ(ToolChat(kTwoTools, kLlamaTemplate)->reading.tools->format.family,
            ToolFormat::Family::kLlama3);
}

TEST(ToolFields, InvalidFieldsAreNamed) {
  const auto function = [](const std::string& members) {
    return R"("tools": [{"type": "function", "function": {)" + members + "}}]";
  };
  const std::string two = kTwoTools;
  const std::string strict = function(R"("name": "f", "strict": true)");
  const struct {
    std::string fields;
    const char* param;
    const char* part;
  } cases[] = {
      {R"("tools": 5)", "tools", "5"},
      {R"("tools": [{"type": "web_search"}])", "tools[0].type", "web_search"},
      {R"("tools": [{"type": "function"}])", "tools[0].function", "is required"},
      {function(R"("name": "a b")"), "tools[0].function.name", "a b"},
      {function(""), "tools[0].function.name", "64"},
      {function("\"name\": \"" + std::string(65, 'a') + "\""), "tools[0].function.name", "aa"},
      {function(R"("name": "f", "parameters": [])"), "tools[0].function.parameters", "[]"},
      {function(R"("name": "f", "strict": 1)"), "tools[0].function.strict", "1"},
      {R"("tools": [{"type": "function", "function": {"name": "f"}},
                    {"type": "function", "function": {"name": "f"}}])",
       "tools[1].function.name", "once"},
      {R"("tool_choice": "required")", "tool_choice", "without tools"},
      {two + R"(, "tool_choice": "any")", "tool_choice", "any"},
      {two + R"(, "tool_choice": {"type": "function", "function": {"name": "h"}})",
       "tool_choice.function.name", "h"},
      {two + R"(, "tool_choice": {"type": "x"})", "tool_choice.type", "x"},
      {two + R"(, "tool_choice": "required", "regex": "a")", "tool_choice", "with regex"},
      {strict + R"(, "response_format": {"type": "json_object"})", "tools[0].function.strict",
       "with response_format"}};
  for (const auto& c : cases) {
    ExpectRefusal(ToolChat(c.fields), c.param, c.part);
  }
}

// The text shows the markers, so that calls are found.
TEST(ToolFields, MarkersCanBeSpecialTokens) {
  ServedModel model = TestServedModel(kMistralTemplate);
  model.tool_format.begin = "<|endoftext|>";
  const TokenId id = model.tokenizer->IdOf("<|endoftext|>");
  const std::string tools = kTwoTools;
  EXPECT_THAT(ToolChat(tools, model)->request.shown_special_tokens, testing::ElementsAre(id));
  EXPECT_THAT(ToolChat(tools)->request.shown_special_tokens, testing::IsEmpty());
  const auto pair = MakeTestEngine();
  const auto chat =
      ToolChat(tools + R"(, "logit_bias": {"0": 100}, "ignore_eos": true, "max_tokens": 2)", model);
  const auto submitted = pair->Submit(chat->RequestOf(0), nullptr, nullptr);
  ASSERT_TRUE(submitted.ok()) << submitted.status();
  EXPECT_EQ(pair->Wait(*submitted)->text, "<|endoftext|><|endoftext|>");
}

// If the template has no place for tools, they are written in the generic form.
TEST(ToolFields, UseTheGenericFormWithoutTemplateSupport) {
  const ServedModel model =
      TestServedModel("{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}");
  const auto request = ToolChat(kTwoTools, model);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_TRUE(request->has_generic_tools);
  EXPECT_TRUE(request->reading.tools->format.may_lack_markers);
  const std::string prompt = model.tokenizer->Decode(request->prompts[0]);
  EXPECT_THAT(prompt, testing::StartsWith("[system] # Tools\n"));
  EXPECT_THAT(prompt, HasSubstr("\n{\"type\": \"function\", \"function\": {\"name\": \"g\"}}\n"));
  EXPECT_THAT(prompt, testing::EndsWith("[user] A\n"));
  const auto none = ToolChat(absl::StrCat(kTwoTools, R"(, "tool_choice": "none")"), model);
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_FALSE(none->has_generic_tools);
  EXPECT_EQ(model.tokenizer->Decode(none->prompts[0]), "[user] A\n");
}

// Text that a constraint allows without a marker was not checked against a schema.
TEST(ToolFields, GenericCallsNeedMarkersUnderAConstraint) {
  const std::string tools = kTwoTools;
  EXPECT_FALSE(ToolChat(tools + R"(, "regex": "a*")", kTemplateWithoutPlace)
                   ->reading.tools->format.may_lack_markers);
  EXPECT_FALSE(
      ToolChat(R"("tools": [{"type": "function", "function": {"name": "f", "strict": true}}])",
               kTemplateWithoutPlace)
          ->reading.tools->format.may_lack_markers);
}

// Even an untrained model makes required calls, and their arguments follow the schemas.
TEST(ToolFields, RequiredCallsFollowTheirSchemas) {
  if (!HasGrammarEngine()) GTEST_SKIP() << "this build has no grammar engine";
  const auto engine = MakeTestEngine();
  for (const char* jinja : kAllTemplates) {
    const ServedModel model = TestServedModel(jinja);
    for (const char* choice : {R"("required", "parallel_tool_calls": false)",
                               R"({"type": "function", "function": {"name": "f"}})"}) {
      const auto request =
          ToolChat(absl::StrCat(kTwoTools, R"(, "temperature": 1, "seed": 1, "max_tokens": 200,)",
                                R"("tool_choice": )", choice),
                   model);
      ASSERT_TRUE(request.ok()) << request.status();
      const auto id = engine->Submit(request->RequestOf(0), nullptr, nullptr);
      ASSERT_TRUE(id.ok()) << id.status();
      const auto completion = engine->Wait(*id);
      ASSERT_TRUE(completion.ok()) << completion.status();
      ToolCallParser parser(*request->reading.tools);
      const AnswerDelta answer = parser.Push(completion->text);
      EXPECT_EQ(answer.content + parser.Finish().content, "") << completion->text;
      ASSERT_EQ(answer.calls.size(), 1u) << completion->text;
      const Json arguments = Json::parse(answer.calls[0].arguments, nullptr, false);
      EXPECT_TRUE(arguments.is_object()) << completion->text;
      if (answer.calls[0].name == "g") continue;
      EXPECT_TRUE(arguments["z"].is_number_integer() && arguments["a"].is_boolean()) << arguments;
    }
  }
}

// This holds with and without "strict".
TEST(ToolFields, RequiredCallsHaveOnlyNamedArguments) {
  const auto request = ToolChat(R"("tool_choice": "required", "tools": [{"type": "function",
      "function": {"name": "f", "parameters": {"type": "object", "properties": {
        "a": {"type": "array", "items": {"properties": {"b": {}}}},
        "c": {"type": "object"}, "d": {"properties": {"e": {}}, "additionalProperties": true},
        "g": {"allOf": [{"properties": {"h": {}}}]}}}}}])");
  ASSERT_TRUE(request.ok()) << request.status();
  const Json tag = Json::parse(request->request.constraint->text)["tags"][0];
  EXPECT_EQ(tag["content"]["json_schema"], Json::parse(R"({"type": "object", "properties": {
        "a": {"type": "array", "items": {"properties": {"b": {}}, "additionalProperties": false}},
        "c": {"type": "object"}, "d": {"properties": {"e": {}}, "additionalProperties": true},
        "g": {"allOf": [{"properties": {"h": {}}}]}}, "additionalProperties": false})"));
}

// Arguments are always objects. An empty schema would allow arguments without end.
TEST(ToolFields, ArgumentsAreObjects) {
  const auto schema_of = [](const std::string& parameters) {
    const auto request = ToolChat(R"("tool_choice": "required", "tools": [{"type": "function",
        "function": {"name": "f", "parameters": )" +
                                  parameters + "}}]");
    EXPECT_TRUE(request.ok()) << request.status();
    const Json tag = Json::parse(request->request.constraint->text)["tags"][0];
    return tag["content"]["json_schema"];
  };
  EXPECT_EQ(schema_of("{}"), Json::parse(R"({"type": "object", "additionalProperties": false})"));
  EXPECT_EQ(schema_of(R"({"anyOf": [{"type": "object"}, {"type": "null"}]})")["type"], "object");
  EXPECT_EQ(schema_of(R"({"type": ["object", "null"]})")["type"], "object");
  for (const char* parameters : {R"({"type": "null"})", R"({"enum": [1]})"}) {
    const auto request = ToolChat(R"("tools": [{"type": "function",
        "function": {"name": "f", "parameters": )" +
                                  std::string(parameters) + "}}]");
    ASSERT_FALSE(request.ok()) << parameters;
    EXPECT_THAT(std::string(request.status().message()), HasSubstr("tools[0].function.parameters"))
        << parameters;
  }
}

TEST(ToolFields, OptionalCallsOfStrictFunctionsFollowTheirSchemas) {
  const std::string tool = R"("tools": [{"type": "function", "function": {"name": "f",
      "strict": true, "parameters": {"properties": {"z": {"type": "integer"}}}}}])";
  const auto request = ToolChat(tool);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->constraint_field, "tools[0].function.strict");
  const Json tag = Json::parse(request->request.constraint->text);
  EXPECT_EQ(tag["type"], "triggered_tags");
  EXPECT_EQ(tag["tags"][0]["content"]["json_schema"]["type"], "object");
  if (!HasGrammarEngine()) return;
  const auto engine = MakeTestEngine();
  for (const char* jinja : kAllTemplates) {
    const auto chat = ToolChat(tool + R"(, "max_tokens": 4)", TestServedModel(jinja));
    ASSERT_TRUE(chat.ok()) << chat.status();
    const auto id = engine->Submit(chat->RequestOf(0), nullptr, nullptr);
    ASSERT_TRUE(id.ok()) << id.status();
    EXPECT_TRUE(engine->Wait(*id).ok());
  }
}

// ---- Answers ----

class ToolAnswers : public ServerTest {
 protected:
  ToolAnswers() { StartWithTemplate(kHermesTemplate); }
  // Returns the answer to a chat for which the model writes `pieces`.
  std::string AnswerTo(const std::string& fields, const std::vector<std::string>& pieces,
                       FinishReason reason = FinishReason::kStop) {
    return ServerTest::AnswerTo(
        "/v1/chat/completions",
        R"({"messages": [{"role": "user", "content": "A"}], )" + fields + "}", pieces, reason);
  }
};

const std::vector<std::string>& TwoCalls() {
  static const auto* const pieces = new std::vector<std::string>{
      "<tool_", "call>\n{\"name\": \"f\", \"argu", "ments\": {\"z\"", ": 1}}\n</tool_call>\n<tool",
      "_call>{\"name\": \"g\", \"arguments\": {}}</tool_call>"};
  return *pieces;
}

TEST_F(ToolAnswers, HaveCallsInPlaceOfText) {
  const Json choice = Json::parse(AnswerTo(kTwoTools, TwoCalls()))["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_TRUE(choice["message"]["content"].is_null());
  const Json& calls = choice["message"]["tool_calls"];
  ASSERT_EQ(calls.size(), 2u) << choice;
  EXPECT_EQ(calls[0]["function"], Json({{"name", "f"}, {"arguments", "{\"z\": 1}"}}));
  EXPECT_EQ(calls[1]["function"], Json({{"name", "g"}, {"arguments", "{}"}}));
  EXPECT_EQ(calls[0]["type"], "function");
  EXPECT_EQ(calls[0]["id"].get<std::string>().size(), 9u);
  EXPECT_NE(calls[0]["id"], calls[1]["id"]);
}

TEST_F(ToolAnswers, AreTextWithoutCalls) {
  const Json choice = Json::parse(AnswerTo(kTwoTools, {"Hi", " <b>"}))["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_EQ(choice["message"]["content"], "Hi <b>");
  EXPECT_FALSE(choice["message"].contains("tool_calls"));
  const Json none = Json::parse(
      AnswerTo(absl::StrCat(kTwoTools, R"(, "tool_choice": "none")"), TwoCalls()))["choices"][0];
  EXPECT_EQ(none["message"]["content"], absl::StrJoin(TwoCalls(), ""));
  EXPECT_EQ(none["finish_reason"], "stop");
  const Json cut = Json::parse(AnswerTo(kTwoTools, {TwoCalls()[0], TwoCalls()[1], TwoCalls()[2]},
                                        FinishReason::kLength))["choices"][0];
  EXPECT_EQ(cut["finish_reason"], "length");
  EXPECT_EQ(cut["message"]["tool_calls"][0]["function"]["arguments"], "{\"z\"");
}

TEST_F(ToolAnswers, StreamArguments) {
  std::vector<std::string> pieces = TwoCalls();
  pieces.insert(pieces.begin(), "So: ");
  const std::string body = AnswerTo(absl::StrCat(kTwoTools, R"(, "stream": true)"), pieces);
  std::string content;
  std::vector<Json> calls;
  std::string reason;
  for (const Json& event : EventsOf(body)) {
    const Json& choice = event["choices"][0];
    const Json& delta = choice["delta"];
    if (choice["finish_reason"].is_string()) reason = choice["finish_reason"];
    if (delta.contains("content")) content += delta["content"].get<std::string>();
    for (const Json& call : delta.value("tool_calls", Json::array())) calls.push_back(call);
  }
  EXPECT_EQ(content, "So:");
  EXPECT_EQ(reason, "tool_calls");
  ASSERT_EQ(calls.size(), 3u) << body;
  EXPECT_EQ(calls[0]["index"], 0);
  EXPECT_EQ(calls[0]["function"], Json({{"name", "f"}, {"arguments", "{\"z\""}}));
  EXPECT_EQ(calls[0]["id"].get<std::string>().size(), 9u);
  EXPECT_EQ(calls[1], Json({{"index", 0}, {"function", {{"arguments", ": 1}"}}}}));
  EXPECT_EQ(calls[2]["index"], 1);
  EXPECT_EQ(calls[2]["function"], Json({{"name", "g"}, {"arguments", "{}"}}));
}

}  // namespace
}  // namespace tandem
