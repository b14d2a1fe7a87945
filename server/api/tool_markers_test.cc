// Tool calls whose markers are special tokens of the model's tokenizer.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/server_testing.h"
#include "tandem/detokenizer.h"
#include "tandem/field_error.h"
#include "tests/folder_testing.h"
#include "text/chat/tool_tags.h"
#include "text/constraint/constraint_compiler.h"
#include "text/constraint/grammar_engine.h"

namespace tandem {
namespace {

using Json = SortedJson;
using testing::ElementsAre;

constexpr char kCallsBegin[] = "<\uff5ctool\u2581calls\u2581begin\uff5c>";
constexpr char kCallsEnd[] = "<\uff5ctool\u2581calls\u2581end\uff5c>";
constexpr char kCallBegin[] = "<\uff5ctool\u2581call\u2581begin\uff5c>";
constexpr char kCallEnd[] = "<\uff5ctool\u2581call\u2581end\uff5c>";
constexpr char kSeparator[] = "<\uff5ctool\u2581sep\uff5c>";
constexpr const char* kMarkers[] = {
    "<tool_call>",   "</tool_call>",   "[TOOL_CALLS]",     "[ARGS]",         "[CALL_ID]",
    "<|tool_call|>", "<|/tool_call|>", "<|START_ACTION|>", "<|END_ACTION|>", kCallsBegin,
    kCallsEnd,       kCallBegin,       kCallEnd,           kSeparator,       "<|other|>"};

// Returns the tokenizer of a small model, with the markers as additional special tokens.
std::unique_ptr<Tokenizer> TokenizerWithMarkers() {
  const std::string model = TestModel("storyteller-7m");
  std::ifstream file(model + "/tokenizer.json");
  Json json = Json::parse(file);
  TokenId id = static_cast<TokenId>(json["model"]["vocab"].size());
  for (const char* marker : kMarkers) {
    Json token = json["added_tokens"][0];
    token["id"] = id++;
    token["content"] = marker;
    json["added_tokens"].push_back(std::move(token));
  }
  const TestFolder folder;
  std::filesystem::copy(model, folder.path());
  std::filesystem::permissions(folder.Path("tokenizer.json"), std::filesystem::perms::owner_all);
  folder.Write("tokenizer.json", json.dump());
  auto tokenizer = Tokenizer::Load(folder.path());
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

class ToolMarkers : public testing::Test {
 protected:
  void SetUp() override {
    if (!HasGrammarEngine()) GTEST_SKIP() << "this build has no grammar engine";
    tokenizer_ = TokenizerWithMarkers();
    ASSERT_NE(tokenizer_, nullptr);
    for (const char* marker : kMarkers) ASSERT_TRUE(tokenizer_->IsSpecial(Id(marker))) << marker;
    end_ = Id("<|endoftext|>");
    compiler_ = std::make_unique<ConstraintCompiler>(tokenizer_.get(), tokenizer_->vocab_size(),
                                                     ConstraintCompiler::Limits());
  }
  TokenId Id(std::string_view text) const { return tokenizer_->IdOf(std::string(text)); }

  // Returns the request to a model whose template `jinja` shows how it writes calls.
  absl::StatusOr<ApiRequest> Ask(const char* jinja, const std::string& fields) {
    ServedModel model = ServedModel::Of(engine_, "story", 8);
    model.chat_template =
        ChatTemplate::Parse(absl::StrCat("{{ tools }}{{ '", jinja, "' if x }}"), "", "");
    model.tool_format = ToolFormat::Of(*model.chat_template);
    model.tokenizer = tokenizer_.get();
    const std::string tools =
        R"("tools": [{"type": "function", "function": {"name": "f", "strict": true, "parameters":
            {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"],
             "additionalProperties": false}}}])";
    return ParseChatRequest(
        absl::StrCat(R"({"messages": [{"role": "user", "content": "A"}], )", tools, fields, "}"),
        model, absl::UnixEpoch());
  }

  // Returns the tokens of a text in which markers are special tokens.
  std::vector<TokenId> TokensOf(const std::string& text) const {
    return *tokenizer_->Encode(text, SpecialTokens::kParse);
  }

  std::vector<TokenId> SpecialAllowed(ConstraintState* state) const {
    std::vector<TokenId> special;
    const absl::Span<const uint32_t> mask = state->Allowed();
    for (TokenId v = 0; v < tokenizer_->vocab_size(); ++v) {
      if ((mask[v / 32] >> (v % 32) & 1) != 0 && tokenizer_->IsSpecial(v)) special.push_back(v);
    }
    return special;
  }
  static int NumAllowed(ConstraintState* state) {
    int count = 0;
    for (const uint32_t word : state->Allowed()) count += __builtin_popcount(word);
    return count;
  }

  // Returns the calls in an answer of these tokens, as the server parses them.
  std::vector<std::string> CallsIn(const std::vector<TokenId>& tokens, const ApiRequest& request) {
    const auto detokenizer = Detokenizer::New(tokenizer_.get(), {}, /*skip_special=*/true,
                                              request.request.shown_special_tokens);
    ToolCallParser parser(*request.reading.tools);
    std::vector<std::string> calls;
    const auto take = [&calls](const AnswerDelta& delta) {
      for (const auto& call : delta.calls) {
        if (calls.size() <= static_cast<size_t>(call.index)) calls.emplace_back();
        calls[call.index] += call.name + call.arguments;
      }
    };
    for (const TokenId token : tokens) take(parser.Push(detokenizer->Push(token)));
    take(parser.Push(detokenizer->Flush()));
    take(parser.Finish());
    return calls;
  }

  // Expects that every token is allowed, and that the answer may end after the last.
  void ExpectTaken(const std::vector<TokenId>& tokens, ConstraintState* state) const {
    for (const TokenId token : tokens) {
      const std::vector<TokenId> special = SpecialAllowed(state);
      if (tokenizer_->IsSpecial(token)) {
        EXPECT_THAT(special, testing::Contains(token)) << tokenizer_->Decode({{token}});
      }
      EXPECT_THAT(special, testing::Not(testing::Contains(Id("<|other|>"))));
      ASSERT_TRUE(state->Accept(token)) << tokenizer_->Decode({{token}});
    }
    EXPECT_THAT(SpecialAllowed(state), testing::Contains(end_));
    EXPECT_TRUE(state->Accept(end_));
    state->Undo();
    for (size_t i = 0; i < tokens.size(); ++i) state->Undo();
  }

  ManualEngine engine_;
  std::unique_ptr<Tokenizer> tokenizer_;
  TokenId end_ = -1;
  std::unique_ptr<ConstraintCompiler> compiler_;
};

struct Case {
  const char* jinja;
  const char* begin;
  std::string call;
};

const std::vector<Case>& Cases() {
  static const auto& cases = *new std::vector<Case>{
      {"<tool_call>", "<tool_call>",
       "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"n\": 12}}\n</tool_call>"},
      {"<tool_call><function=f><parameter=a>", "<tool_call>",
       "<tool_call>\n<function=f>\n<parameter=n>\n12\n</parameter>\n</function>\n</tool_call>"},
      {"<tool_call><arg_key>", "<tool_call>",
       "<tool_call>f\n<arg_key>n</arg_key>\n<arg_value>12</arg_value>\n</tool_call>"},
      {"[TOOL_CALLS]", "[TOOL_CALLS]",
       "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"n\": 12}}]"},
      {"[TOOL_CALLS]f[ARGS]", "[TOOL_CALLS]", "[TOOL_CALLS]f[ARGS]{\"n\": 12}"},
      {"[TOOL_CALLS]f[CALL_ID]i[ARGS]", "[TOOL_CALLS]",
       "[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{\"n\": 12}"},
      {"<|tool_call|>", "<|tool_call|>",
       "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"n\": 12}}]"},
      {"<|tool|><|/tool|>", "<|tool_call|>",
       "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"n\": 12}}]<|/tool_call|>"},
      {"<|START_ACTION|>", "<|START_ACTION|>",
       "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"f\", "
       "\"parameters\": {\"n\": 12}}\n]<|END_ACTION|>"},
      {kCallsBegin, kCallsBegin,
       absl::StrCat(kCallsBegin, kCallBegin, "f", kSeparator, "{\"n\": 12}", kCallEnd, kCallsEnd)},
      {"<\uff5ctool\u2581calls\u2581begin\uff5c>```json", kCallsBegin,
       absl::StrCat(kCallsBegin, kCallBegin, "function", kSeparator, "f\n```json\n{\"n\": 12}\n```",
                    kCallEnd, kCallsEnd)}};
  return cases;
}

// Row 116 of the bug catalogue.
TEST_F(ToolMarkers, AreForcedForRequiredCalls) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.jinja);
    const auto request = Ask(c.jinja, R"(, "tool_choice": "required")");
    ASSERT_TRUE(request.ok()) << request.status();
    const auto constraint = compiler_->Compile(*request->request.constraint, {{end_}});
    ASSERT_TRUE(constraint.ok()) << constraint.status();
    const std::unique_ptr<ConstraintState> state = (*constraint)->Begin();
    EXPECT_THAT(SpecialAllowed(state.get()), ElementsAre(Id(c.begin)));
    EXPECT_EQ(NumAllowed(state.get()), 1);
    const std::vector<TokenId> tokens = TokensOf(c.call);
    EXPECT_EQ(tokens.front(), Id(c.begin));
    ExpectTaken(tokens, state.get());
    EXPECT_THAT(CallsIn(tokens, *request), testing::SizeIs(1));
    EXPECT_THAT(CallsIn(tokens, *request)[0], testing::StartsWith("f{\"n\": 12"));
  }
}

TEST_F(ToolMarkers, BeginOptionalCallsThatFollowTheirSchemas) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.jinja);
    const auto request = Ask(c.jinja, "");
    ASSERT_TRUE(request.ok()) << request.status();
    EXPECT_EQ(request->constraint_field, "tools[0].function.strict");
    const auto constraint = compiler_->Compile(*request->request.constraint, {{end_}});
    ASSERT_TRUE(constraint.ok()) << constraint.status();
    const std::unique_ptr<ConstraintState> state = (*constraint)->Begin();
    EXPECT_THAT(SpecialAllowed(state.get()), testing::UnorderedElementsAre(end_, Id(c.begin)));
    EXPECT_GT(NumAllowed(state.get()), 4000);
    ExpectTaken(TokensOf("Let us see."), state.get());
    const std::vector<TokenId> tokens = TokensOf("One. " + c.call);
    ExpectTaken(tokens, state.get());
    EXPECT_THAT(CallsIn(tokens, *request), testing::SizeIs(1));
    // After the marker only a call is allowed.
    ASSERT_TRUE(state->Accept(Id(c.begin)));
    EXPECT_LT(NumAllowed(state.get()), 20);
    EXPECT_THAT(SpecialAllowed(state.get()), testing::Not(testing::Contains(end_)));
  }
}

// In GLM-4.5's form the markers of calls may be special tokens, but those of arguments may not.
TEST(ToolTags, RefuseArgumentMarkersThatAreSpecialTokens) {
  const ToolFunction function{
      .name = "f", .field = "tools[0].function", .schema = {{"type", "object"}}};
  ToolTagOptions options{.format = ToolFormat::Of(ToolFormat::Family::kGlm),
                         .special = {{"<tool_call>", 7}, {"</tool_call>", 8}}};
  EXPECT_TRUE(CallTag(options, function, /*keeps_schema=*/true).ok());
  options.special.emplace_back("</arg_key>", 9);
  const auto refused = CallTag(options, function, /*keeps_schema=*/true);
  EXPECT_TRUE(absl::IsInvalidArgument(refused.status())) << refused.status();
  EXPECT_EQ(FieldOf(refused.status()), "tools[0].function.parameters");
  EXPECT_THAT(refused.status().message(), testing::HasSubstr("</arg_key> is a special token"));
}

// A constraint that does not list special tokens allows none, and constraints with different lists
// do not share a grammar.
TEST_F(ToolMarkers, AreAllowedOnlyInConstraintsThatNameThem) {
  const TokenId begin = Id("<tool_call>");
  const auto allowed = [&](const std::vector<TokenId>& tokens) {
    const OutputConstraint constraint{
        .kind = OutputConstraint::Kind::kStructuralTag,
        .text = absl::StrCat(R"({"type": "token_triggered_tags", "trigger_tokens": [)", begin,
                             R"(], "tags": [{"type": "tag", "begin": {"type": "token", "token": )",
                             begin, R"(}, "content": {"type": "const_string", "value": "a"},)",
                             R"( "end": ""}]})"),
        .tokens = tokens};
    const auto compiled = compiler_->Compile(constraint, {{end_}});
    EXPECT_TRUE(compiled.ok()) << compiled.status();
    const std::unique_ptr<ConstraintState> state = (*compiled)->Begin();
    return state->Accept(begin);
  };
  EXPECT_TRUE(allowed({begin}));
  EXPECT_FALSE(allowed({}));
  EXPECT_FALSE(allowed({Id("[ARGS]")}));
  EXPECT_TRUE(allowed({begin, Id("[ARGS]")}));
}

}  // namespace
}  // namespace tandem
