// Reasoning: settings in requests, and its place in answers.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/api/answer_writer.h"
#include "server/server_testing.h"
#include "text/constraint/grammar_engine.h"

namespace tandem {
namespace {

using Json = SortedJson;
using Start = ReasoningStart;

// ---- Where answers start ----

constexpr char kThinking[] =
    "{{ ':' ~ messages[-1].content }}{% if not add_generation_prompt %}"
    "{% elif enable_thinking is false %}<think>\n\n</think>\n\n{% elif opens %}<think>\n{% else "
    "%}:{% endif %}{{ tools | tojson if tools }}";

absl::StatusOr<ApiRequest> ReasoningChat(const ServedModel& model, const std::string& fields = "",
                                         const std::string& role = "user",
                                         const std::string& said = "A") {
  return ChatWith(fields, model, Json::array({{{"role", role}, {"content", said}}}).dump());
}

TEST(ReasoningRequests, DetermineWhereAnswersStart) {
  const ServedModel model = TestServedModel(kThinking);
  const auto start = [&](const std::string& fields, const std::string& role = "user",
                         const std::string& said = "A") {
    const auto request = ReasoningChat(model, fields, role, said);
    EXPECT_TRUE(request.ok()) << request.status();
    return request->reading.reasoning.has_value() ? request->reading.reasoning->splitter.start
                                                  : Start::kNone;
  };
  EXPECT_EQ(start(""), Start::kMayBegin);
  EXPECT_EQ(start(R"(, "chat_template_kwargs": {"opens": true})"), Start::kInside);
  EXPECT_EQ(start(R"(, "chat_template_kwargs": {"enable_thinking": false})"), Start::kNone);
  EXPECT_EQ(start(R"(, "separate_reasoning": false)"), Start::kNone);
  // The user's message comes before the end of the template.
  EXPECT_EQ(start("", "user", "<think>"), Start::kMayBegin);
  const std::string goes_on = R"(, "continue_final_message": true)";
  EXPECT_EQ(start(goes_on, "assistant", "<think>\nSo"), Start::kContinues);
  EXPECT_EQ(start(goes_on, "assistant", "<think>So</think>"), Start::kNone);
  EXPECT_EQ(start(goes_on, "assistant", "The"), Start::kNone);
  EXPECT_EQ(start(goes_on, "assistant", ""), Start::kMayBegin);
}

TEST(ReasoningRequests, FindTheFormatInTemplateOrVocabulary) {
  ManualEngine engine;
  const auto format_of = [&](const std::string& jinja) {
    return ReasoningFormat::Of(*ChatTemplate::Parse(jinja, "", ""), engine.tokenizer());
  };
  EXPECT_EQ(format_of("{{ '<think>' }}")->end, "</think>");
  EXPECT_EQ(format_of("{{ m.split('</think>') }}")->begin, "<think>");
  EXPECT_EQ(format_of("{{ '[THINK]' }}")->end, "[/THINK]");
  EXPECT_FALSE(format_of("{{ messages }}").has_value());
  constexpr char kFile[] = R"({"added_tokens": [
      {"id": 2, "content": "<think>", "special": false, "normalized": false},
      {"id": 3, "content": "</think>", "special": false, "normalized": false}],
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}})";
  const auto tokenizer = Tokenizer::Parse(kFile, "", "test");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto chat = ChatTemplate::Parse("{{ messages }}", "", "");
  EXPECT_TRUE(ReasoningFormat::Of(*chat, **tokenizer).has_value());
  EXPECT_FALSE(ReasoningFormat::Of(*ChatTemplate::Parse("", "", ""), **tokenizer).has_value());
}

// ---- Limits ----

TEST(ReasoningLimits, HaveTheNamesOfOtherEngines) {
  const ServedModel model = TestServedModel(kThinking);
  const auto limit = [&](const std::string& fields) {
    const auto request = ReasoningChat(model, ", " + fields);
    EXPECT_TRUE(request.ok()) << request.status();
    if (!request.ok() || !request->request.thinking_budget.has_value()) return -1;
    EXPECT_EQ(request->request.thinking_budget->markers.start, Start::kMayBegin);
    return request->request.thinking_budget->max_tokens;
  };
  for (const char* name :
       {"max_thinking_tokens", "thinking_token_budget", "thinking_budget", "reasoning_budget",
        "reasoning_budget_tokens", "thinking_budget_tokens"}) {
    EXPECT_EQ(limit(absl::StrCat("\"", name, "\": 9")), 9) << name;
    EXPECT_EQ(limit(absl::StrCat("\"", name, "\": 0")), 0) << name;
    EXPECT_EQ(limit(absl::StrCat("\"", name, "\": null")), -1) << name;
    if (std::string(name) == "max_thinking_tokens") continue;
    EXPECT_EQ(limit(absl::StrCat("\"", name, "\": -1")), -1) << name;
  }
  EXPECT_EQ(limit(R"("custom_params": {"thinking_budget": 9})"), 9);
  EXPECT_EQ(limit(R"("custom_params": {}, "reasoning_budget": 9, "max_thinking_tokens": 9)"), 9);
  EXPECT_EQ(limit(R"("separate_reasoning": false, "max_thinking_tokens": 9)"), 9);
}

TEST(ReasoningLimits, MustBeNumbersThatAgree) {
  const ServedModel model = TestServedModel(kThinking);
  const auto refuse = [&](const std::string& fields, const std::string& param,
                          const std::string& part) {
    ExpectRefusal(ReasoningChat(model, ", " + fields), param, part);
  };
  refuse(R"("max_thinking_tokens": -1)", "max_thinking_tokens",
         "max_thinking_tokens: must be at least 0, got -1");
  refuse(R"("max_thinking_tokens": "9")", "max_thinking_tokens", "max_thinking_tokens: ");
  refuse(R"("thinking_budget": -2)", "thinking_budget", "must be at least -1, got -2");
  refuse(R"("max_thinking_tokens": 9, "reasoning_budget": 8)", "reasoning_budget",
         "8 is not the same as max_thinking_tokens");
  refuse(R"("custom_params": {"thinking_budget": 9, "other": 1})", "custom_params.other",
         "is not supported");
  refuse(R"("custom_params": {"thinking_budget": "x"})", "custom_params.thinking_budget", "");
}

TEST(ReasoningLimits, NeedAModelThatMarksItsReasoning) {
  const ServedModel model = TestServedModel("{{ messages[-1].content }}");
  for (const char* name : {"max_thinking_tokens", "reasoning_budget"}) {
    ExpectRefusal(ReasoningChat(model, absl::StrCat(", \"", name, "\": 0")), name,
                  "0 is not possible: the model's chat template and vocabulary have no markers of "
                  "reasoning");
  }
  EXPECT_TRUE(ReasoningChat(model, R"(, "reasoning_budget": -1)").ok());
  EXPECT_TRUE(ReasoningChat(model, R"(, "reasoning_effort": "none")").ok());
}

TEST(ReasoningLimits, FollowFromAnEffortThatTheTemplateDoesNotRead) {
  const auto limit = [](const ServedModel& model, const std::string& fields) {
    const auto request = ReasoningChat(model, fields);
    EXPECT_TRUE(request.ok()) << request.status();
    return request->request.thinking_budget.has_value()
               ? request->request.thinking_budget->max_tokens
               : -1;
  };
  const ServedModel model = TestServedModel(kThinking);
  EXPECT_EQ(limit(model, R"(, "reasoning_effort": "none")"), 0);
  EXPECT_EQ(limit(model, R"(, "reasoning_effort": "none", "max_thinking_tokens": 7)"), 7);
  for (const char* effort : {"minimal", "low", "medium", "high", "xhigh", "other"}) {
    EXPECT_EQ(limit(model, absl::StrCat(R"(, "reasoning_effort": ")", effort, "\"")), -1);
  }
  const ServedModel reads =
      TestServedModel(absl::StrCat(kThinking, "{{ '' if reasoning_effort == 'none' }}"));
  EXPECT_EQ(limit(reads, R"(, "reasoning_effort": "none")"), -1);
  const ServedModel opens = TestServedModel("{{ messages[-1].content ~ '<think>' }}");
  EXPECT_EQ(limit(opens, R"(, "reasoning_effort": "none")"), -1);
}

TEST(ReasoningLimits, AreThoseOfResponsesToo) {
  const ServedModel model = TestServedModel(kThinking);
  const auto request = ParseResponsesRequest(R"({"input": "A", "max_thinking_tokens": 9})", model,
                                             absl::UnixEpoch());
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->request.thinking_budget->max_tokens, 9);
  ExpectRefusal(ParseResponsesRequest(R"({"input": "A", "reasoning": {"max_tokens": 9}})", model,
                                      absl::UnixEpoch()),
                "reasoning.max_tokens", "use max_thinking_tokens");
}

// ---- Constraints ----

// Decides whether a request's grammar accepts a whole text.
class HeldText {
 public:
  HeldText(const Tokenizer& words, const OutputConstraint& constraint) : words_(words) {
    const auto engine = GrammarEngine::Make(words, words.vocab_size());
    const auto grammar = (*engine)->Compile(constraint);
    EXPECT_TRUE(grammar.ok()) << grammar.status() << constraint.text;
    const TokenId ends[] = {words.IdOf("<|endoftext|>")};
    constraint_ = (*grammar)->EndingIn(ends);
  }
  bool Takes(const std::string& text) const {
    const auto state = constraint_->Begin();
    const std::vector<TokenId> ids = *words_.Encode(text, SpecialTokens::kPlain);
    for (const TokenId id : ids) {
      if (!state->Accept(id)) return false;
    }
    return state->Accept(words_.IdOf("<|endoftext|>"));
  }

 private:
  const Tokenizer& words_;
  std::shared_ptr<const TokenConstraint> constraint_;
};

TEST(ReasoningRequests, ConstrainOnlyTheTextAfterTheReasoning) {
  if (!HasGrammarEngine()) GTEST_SKIP() << "this build has no grammar engine";
  const ServedModel model = TestServedModel(kThinking);
  const struct {
    const char* fields;
    const char* right;
    const char* wrong;
  } cases[] = {{R"("guided_regex": "[ab]+")", "ab", "abc"},
               {R"("guided_choice": ["yes", "no"])", "no", "noo"},
               {R"("guided_grammar": "root ::= \"x\" [0-9]")", "x5", "x"},
               {R"("response_format": {"type": "json_object"})", "{\"a\": 1}", "[1]"},
               {R"("response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema":
          {"type": "object", "properties": {"z": {"type": "boolean"}}, "required": ["z"]}}})",
                "{\"z\": true}", "{\"z\": 1}"},
               {R"("guided_json": "{\"type\": \"integer\"}")", "12", "x"}};
  for (const auto& c : cases) {
    SCOPED_TRACE(c.fields);
    const std::string fields = absl::StrCat(", ", c.fields);
    const auto may_begin = ReasoningChat(model, fields);
    ASSERT_TRUE(may_begin.ok()) << may_begin.status();
    const HeldText may(*model.tokenizer, *may_begin->request.constraint);
    const std::string right = c.right;
    EXPECT_TRUE(may.Takes(right));
    EXPECT_FALSE(may.Takes(c.wrong));
    EXPECT_TRUE(may.Takes("<think>\nSo <b> I {[ say\n</think>\n\n" + right));
    EXPECT_FALSE(may.Takes("<think>So</think>" + std::string(c.wrong)));
    EXPECT_FALSE(may.Takes("<think>So"));
    EXPECT_FALSE(may.Takes("<think>So</think>"));
    const auto inside =
        ReasoningChat(model, fields + R"(, "chat_template_kwargs": {"opens": true})");
    const HeldText in(*model.tokenizer, *inside->request.constraint);
    EXPECT_TRUE(in.Takes("So\n</think>" + right));
    EXPECT_FALSE(in.Takes(right));
    const auto none =
        ReasoningChat(model, fields + R"(, "chat_template_kwargs": {"enable_thinking": false})");
    const HeldText without(*model.tokenizer, *none->request.constraint);
    EXPECT_TRUE(without.Takes(right));
    EXPECT_FALSE(without.Takes("<think>So</think>" + right));
  }
}

TEST(ReasoningRequests, RequiredCallsFollowTheReasoning) {
  if (!HasGrammarEngine()) GTEST_SKIP() << "this build has no grammar engine";
  const ServedModel model = TestServedModel(kThinking);
  const std::string tools = R"(, "tools": [{"type": "function", "function": {"name": "f",
      "strict": true, "parameters": {"type": "object", "properties": {}}}}])";
  const std::string call = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
  const auto required = ReasoningChat(model, tools + R"(, "tool_choice": "required")");
  ASSERT_TRUE(required.ok()) << required.status();
  const HeldText must(*model.tokenizer, *required->request.constraint);
  EXPECT_TRUE(must.Takes(call));
  EXPECT_TRUE(must.Takes("<think>So <tool_call> it is</think>\n" + call));
  EXPECT_FALSE(must.Takes("<think>So</think>\nNo."));
  const HeldText may(*model.tokenizer, *ReasoningChat(model, tools)->request.constraint);
  EXPECT_TRUE(may.Takes("<think>So</think>\nNo."));
  EXPECT_TRUE(may.Takes("<think>So</think>\nYes: " + call));
  EXPECT_FALSE(may.Takes("<think>So</think><tool_call>\n{\"name\": \"g\"}"));
}

// Errors of a constraint are the same with reasoning as without.
TEST(ReasoningRequests, LeaveErrorsOfConstraintsToTheEngine) {
  const ServedModel model = TestServedModel(kThinking);
  const auto request = ReasoningChat(model, R"(, "guided_json": "{")");
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->request.constraint->kind, OutputConstraint::Kind::kJsonSchema);
  EXPECT_EQ(ReasoningChat(model, R"(, "guided_choice": [])")->request.constraint->kind,
            OutputConstraint::Kind::kChoice);
}

// The conditional law scores whole answers, so it begins where the answer does.
TEST(ReasoningRequests, ConditionalChoicesHaveNoReasoning) {
  const ServedModel model = TestServedModel(kThinking);
  const std::string fields = R"(, "guided_choice": ["a"], "choice_law": "conditional")";
  for (const char* extra : {"", R"(, "chat_template_kwargs": {"enable_thinking": false})"}) {
    const auto request = ReasoningChat(model, fields + extra);
    ASSERT_TRUE(request.ok()) << request.status();
    EXPECT_EQ(request->request.constraint->kind, OutputConstraint::Kind::kChoice);
    EXPECT_FALSE(request->reading.reasoning.has_value());
  }
  ExpectRefusal(ReasoningChat(model, fields + R"(, "chat_template_kwargs": {"opens": true})"),
                "choice_law", "within the model's reasoning");
}

// The text shows the markers. A constraint cannot contain them, so it applies to the whole answer.
TEST(ReasoningRequests, MarkersCanBeSpecialTokens) {
  ServedModel model = TestServedModel(kThinking);
  model.reasoning = ReasoningFormat{.begin = "<|endoftext|>", .end = "</think>"};
  const TokenId id = model.tokenizer->IdOf("<|endoftext|>");
  EXPECT_THAT(ReasoningChat(model)->request.shown_special_tokens, testing::ElementsAre(id));
  const auto held = ReasoningChat(model, R"(, "guided_regex": "a")");
  EXPECT_FALSE(held->reading.reasoning.has_value());
  EXPECT_EQ(held->request.constraint->kind, OutputConstraint::Kind::kRegex);
}

// ---- Answers ----

constexpr char kServedTemplate[] =
    "{% for m in messages %}{{ m.role }}:{{ m.reasoning_content }}{{ m.content }};{% endfor %}"
    "{{ tools | tojson if tools }}{{ '<think>' if opens else ('</think>' if closed) }}";

class ReasoningAnswers : public ServerTest {
 protected:
  ReasoningAnswers() { StartWithTemplate(kServedTemplate); }
  std::string AnswerTo(const std::string& fields, const std::vector<std::string>& pieces,
                       FinishReason reason = FinishReason::kStop, int n = 1) {
    return ServerTest::AnswerTo("/v1/chat/completions",
                                R"({"messages": [{"role": "user", "content": "A"}])" + fields + "}",
                                pieces, reason, n);
  }
  Json MessageOf(const std::string& fields, const std::vector<std::string>& pieces,
                 FinishReason reason = FinishReason::kStop) {
    return Json::parse(AnswerTo(fields, pieces, reason))["choices"][0]["message"];
  }
};

TEST_F(ReasoningAnswers, SeparateReasoningFromContent) {
  const Json message = MessageOf("", {"<thi", "nk>\nSo.", "\n</think>\n", "\nHi"});
  EXPECT_EQ(message["reasoning_content"], "So.");
  EXPECT_EQ(message["content"], "Hi");
  const Json plain = MessageOf("", {"Hi <think>"});
  EXPECT_FALSE(plain.contains("reasoning_content"));
  EXPECT_EQ(plain["content"], "Hi <think>");
  const std::string opens = R"(, "chat_template_kwargs": {"opens": true})";
  EXPECT_EQ(MessageOf(opens, {"So.</think>Hi"})["reasoning_content"], "So.");
  const Json cut = MessageOf(opens, {"So. And"}, FinishReason::kLength);
  EXPECT_EQ(cut["reasoning_content"], "So. And");
  EXPECT_TRUE(cut["content"].is_null());
  EXPECT_EQ(MessageOf(R"(, "chat_template_kwargs": {"closed": true})", {"<think>Hi"})["content"],
            "<think>Hi");
}

TEST(ReasoningAnswer, UsageCountsReasoningTokens) {
  const ServedModel model = TestServedModel(kThinking);
  const std::string thoughts = "<think>\nSo.\n</think>";
  Completion completion;
  completion.token_ids = *model.tokenizer->Encode(thoughts, SpecialTokens::kPlain);
  const auto size = completion.token_ids.size();
  completion.token_ids.push_back(model.tokenizer->IdOf("a"));
  completion.text = thoughts + "a";
  for (const bool is_separate : {true, false}) {
    const auto request =
        ReasoningChat(model, is_separate ? "" : R"(, "separate_reasoning": false)");
    const auto writer = AnswerWriter::Make(&*request, &model, {.id = "i"});
    const Json usage = Json::parse(writer->FullAnswer({&completion, 1}))["usage"];
    EXPECT_EQ(usage["completion_tokens"], size + 1);
    EXPECT_EQ(usage["completion_tokens_details"]["reasoning_tokens"], is_separate ? size : 0);
  }
}

TEST_F(ReasoningAnswers, StreamReasoning) {
  const std::vector<std::string> pieces = {"<think>", "So",    " it", " is\n",
                                           "</thi",   "nk>\n", "Hi",  "."};
  const auto stream = [&](const std::string& fields) {
    std::vector<std::string> reasoning;
    std::string content;
    for (const Json& event : EventsOf(AnswerTo(R"(, "stream": true)" + fields, pieces))) {
      const Json& delta = event["choices"][0]["delta"];
      if (delta.contains("reasoning_content")) {
        EXPECT_EQ(content, "");
        reasoning.push_back(delta["reasoning_content"]);
      }
      content += delta.value("content", "");
    }
    EXPECT_EQ(content, "Hi.");
    return reasoning;
  };
  EXPECT_THAT(stream(""), testing::ElementsAre("So", " it", " is"));
  EXPECT_THAT(stream(R"(, "stream_reasoning": false)"), testing::ElementsAre("So it is"));
  EXPECT_THAT(stream(R"(, "include_reasoning": false)"), testing::IsEmpty());
}

TEST_F(ReasoningAnswers, KeepReasoningInTheTextOnRequest) {
  const std::string text = "<think>So.</think>Hi";
  EXPECT_EQ(MessageOf(R"(, "separate_reasoning": false)", {text})["content"], text);
  const Json without = MessageOf(R"(, "include_reasoning": false)", {text});
  EXPECT_EQ(without["content"], "Hi");
  EXPECT_FALSE(without.contains("reasoning_content"));
  options_.service.splits_reasoning = false;
  Start();
  EXPECT_EQ(MessageOf("", {text})["content"], text);
}

TEST_F(ReasoningAnswers, SplitEveryChoice) {
  const Json choices = Json::parse(
      AnswerTo(R"(, "n": 2)", {"<think>So.</think>Hi"}, FinishReason::kStop, 2))["choices"];
  ASSERT_EQ(choices.size(), 2u);
  for (const Json& choice : choices) {
    EXPECT_EQ(choice["message"]["reasoning_content"], "So.");
    EXPECT_EQ(choice["message"]["content"], "Hi");
  }
}

TEST_F(ReasoningAnswers, CallToolsAfterTheReasoning) {
  const std::string tools = R"(, "tools": [{"type": "function", "function": {"name": "f"}}])";
  const std::string call = R"(<tool_call>{"name": "f", "arguments": {}}</tool_call>)";
  const std::vector<std::string> pieces = {"<think>I <tool_call>", call, "</think>\n\n", call};
  const Json choice = Json::parse(AnswerTo(tools, pieces))["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(choice["message"]["reasoning_content"], "I <tool_call>" + call);
  EXPECT_TRUE(choice["message"]["content"].is_null());
  EXPECT_EQ(choice["message"]["tool_calls"].size(), 1u);
  int num_calls = 0;
  for (const Json& event : EventsOf(AnswerTo(tools + R"(, "stream": true)", pieces))) {
    num_calls += static_cast<int>(event["choices"][0]["delta"].count("tool_calls"));
  }
  EXPECT_EQ(num_calls, 1);
}

// The client sends the message of an answer back unchanged.
TEST_F(ReasoningAnswers, GoBackToTheTemplate) {
  const std::string body = R"({"messages": [{"role": "user", "content": "A"},
      {"role": "assistant", "content": "B", ")";
  for (const char* name : {"reasoning_content", "reasoning"}) {
    const Json answer = Ask("POST", "/tokenize", absl::StrCat(body, name, R"(": "So."}]})")).json();
    std::string text;
    for (const Json& token : answer["token_strs"]) text += token.get<std::string>();
    EXPECT_EQ(text, "user:A;assistant:So.B;") << answer;
  }
}

TEST_F(ReasoningAnswers, EchoContinuedReasoning) {
  const std::string body =
      R"({"messages": [{"role": "assistant", "content": "<think>So"}], "echo": true,
          "continue_final_message": true})";
  // The template writes the marker, and the message ends after it.
  const std::string answer =
      ServerTest::AnswerTo("/v1/chat/completions", body, {" it is.</think>Hi"});
  const Json message = Json::parse(answer)["choices"][0]["message"];
  EXPECT_EQ(message["reasoning_content"], "So it is.");
  EXPECT_EQ(message["content"], "Hi");
}

}  // namespace
}  // namespace tandem
