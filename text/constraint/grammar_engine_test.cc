// Compares masks with brute force over the whole vocabulary, and checks that generated texts
// satisfy their constraints.
#include "text/constraint/grammar_engine.h"

#include <cstring>
#include <memory>
#include <random>
#include <regex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/source_path_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tandem/json_value.h"
#include "text/constraint/constraint_compiler.h"

namespace tandem {
namespace {

using Json = SortedJson;

using Kind = OutputConstraint::Kind;
using testing::HasSubstr;

class Constraints : public testing::Test {
 protected:
  void SetUp() override {
    if (!HasGrammarEngine()) GTEST_SKIP() << "this build has no grammar engine";
    tokenizer = *Tokenizer::Load(SourcePath("models/storyteller-7m"));
    end = tokenizer->IdOf("<|endoftext|>");
    ASSERT_GE(end, 0);
    compiler = std::make_unique<ConstraintCompiler>(tokenizer.get(), vocab_size(),
                                                    ConstraintCompiler::Limits());
  }
  int vocab_size() const { return tokenizer->vocab_size() + 5; }  // models pad their vocabularies

  std::shared_ptr<const TokenConstraint> Compile(const OutputConstraint& constraint) {
    return compiler->Compile(constraint, {{end}}).value();
  }
  bool Takes(const TokenConstraint& constraint, const std::string& text) const {
    const auto state = constraint.Begin();
    const std::vector<TokenId> tokens = *tokenizer->Encode(text, SpecialTokens::kPlain);
    for (const TokenId token : tokens) {
      if (!state->Accept(token)) return false;
    }
    return state->Accept(end);
  }
  std::string ErrorOf(const OutputConstraint& constraint) {
    const auto compiled = compiler->Compile(constraint, {{end}});
    EXPECT_FALSE(compiled.ok());
    EXPECT_TRUE(absl::StartsWith(compiled.status().message(), "constraint: ")) << compiled.status();
    return std::string(compiled.status().message());
  }
  std::vector<TokenId> AllowedBy(ConstraintState* state) const {
    std::vector<TokenId> tokens;
    const absl::Span<const uint32_t> mask = state->Allowed();
    for (TokenId v = 0; v < vocab_size(); ++v) {
      if ((mask[v / 32] >> (v % 32) & 1) != 0) tokens.push_back(v);
    }
    return tokens;
  }
  std::string BytesOf(TokenId token) const {
    const auto text = tokenizer->TextOf(token, /*is_first=*/false);
    return text.has_value() && !tokenizer->IsSpecial(token) ? std::string(text->bytes) : "";
  }
  // Returns a complete random text of allowed tokens.
  std::string RandomText(ConstraintState* state, std::mt19937* random) const {
    std::string text;
    for (int i = 0; i < 2000; ++i) {
      const std::vector<TokenId> allowed = AllowedBy(state);
      if (allowed.empty()) ADD_FAILURE() << "no token is allowed after " << text;
      if (allowed.empty()) return text;
      // Prefer closing characters after 20 tokens, and end at once where that is allowed: random
      // texts would rarely end.
      TokenId token = allowed[(*random)() % allowed.size()];
      for (const char* closing : {"\"", "]", "}", ":", "1"}) {
        const TokenId id = tokenizer->IdOf(closing);
        const bool may_come = std::find(allowed.begin(), allowed.end(), id) != allowed.end();
        if (i > 20 && may_come && BytesOf(token).size() != 1) token = id;
      }
      if (std::find(allowed.begin(), allowed.end(), end) != allowed.end()) token = end;
      EXPECT_TRUE(state->Accept(token));
      if (token == end) return text;
      text += BytesOf(token);
    }
    return text;
  }

  std::unique_ptr<Tokenizer> tokenizer;
  TokenId end = -1;
  std::unique_ptr<ConstraintCompiler> compiler;
};

// Whether some choice begins with `text`.
bool IsBeginning(const std::vector<std::string>& choices, const std::string& text) {
  for (const std::string& choice : choices) {
    if (absl::StartsWith(choice, text)) return true;
  }
  return false;
}

// Checks every token of the vocabulary at every position of every choice.
TEST_F(Constraints, MasksMatchBruteForce) {
  const std::vector<std::string> choices = {"yes", "yesterday", "no, never", "n\xc3\xb6"};
  const auto constraint = Compile({.kind = Kind::kChoice, .choices = choices});
  ASSERT_NE(constraint, nullptr);
  for (const std::string& choice : choices) {
    const std::vector<TokenId> tokens = *tokenizer->Encode(choice, SpecialTokens::kPlain);
    const std::unique_ptr<ConstraintState> state = constraint->Begin();
    std::string text;
    for (size_t i = 0; i <= tokens.size(); ++i) {
      const std::vector<TokenId> allowed = AllowedBy(state.get());
      const std::set<TokenId> found(allowed.begin(), allowed.end());
      for (TokenId v = 0; v < vocab_size(); ++v) {
        const std::string bytes = BytesOf(v);
        const bool is_complete = std::find(choices.begin(), choices.end(), text) != choices.end();
        const bool wanted =
            v == end ? is_complete : !bytes.empty() && IsBeginning(choices, text + bytes);
        EXPECT_EQ(found.contains(v), wanted) << text << " + " << v << " " << bytes;
      }
      if (i == tokens.size()) break;
      ASSERT_TRUE(state->Accept(tokens[i]));
      text += BytesOf(tokens[i]);
    }
    ASSERT_TRUE(state->Accept(end));
    EXPECT_TRUE(AllowedBy(state.get()).empty());
    EXPECT_FALSE(state->Accept(end));
    EXPECT_EQ(state->Forced(), "");
    state->Undo();
    EXPECT_FALSE(AllowedBy(state.get()).empty());
  }
}

TEST_F(Constraints, UndoingLeavesNoTrace) {
  const auto constraint = Compile({.kind = Kind::kJsonObject});
  ASSERT_NE(constraint, nullptr);
  std::mt19937 random(3);
  const std::unique_ptr<ConstraintState> walked = constraint->Begin();
  const std::unique_ptr<ConstraintState> straight = constraint->Begin();
  for (int i = 0; i < 60; ++i) {
    std::vector<TokenId> allowed = AllowedBy(straight.get());
    ASSERT_EQ(AllowedBy(walked.get()), allowed) << i;
    std::erase(allowed, end);
    if (allowed.empty()) break;
    const int detour = static_cast<int>(random() % 5);
    int taken = 0;
    for (; taken < detour; ++taken) {
      const std::vector<TokenId> ways = AllowedBy(walked.get());
      if (ways.empty() || !walked->Accept(ways[random() % ways.size()])) break;
    }
    EXPECT_FALSE(walked->Accept(-1));
    EXPECT_FALSE(walked->Accept(vocab_size()));
    for (; taken > 0; --taken) walked->Undo();
    const std::unique_ptr<ConstraintState> copy = walked->Clone();
    const TokenId token = allowed[random() % allowed.size()];
    ASSERT_TRUE(walked->Accept(token));
    ASSERT_TRUE(straight->Accept(token));
    ASSERT_TRUE(copy->Accept(token));
    EXPECT_EQ(AllowedBy(copy.get()), AllowedBy(straight.get()));
  }
}

TEST_F(Constraints, TextsSatisfyThem) {
  std::mt19937 random(5);
  const std::string schema =
      R"({"type": "object", "title": "A person", "$schema": "https://json-schema.org/draft/2020-12/schema",
          "properties": {"name": {"type": "string", "maxLength": 12, "description": "whose"},
                         "age": {"type": "integer", "minimum": 0, "maximum": 150},
                         "kind": {"enum": ["king", "son"]},
                         "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3}},
          "required": ["name", "age", "kind", "tags"]})";
  const auto person = Compile({.kind = Kind::kJsonSchema, .text = schema});
  const auto object = Compile({.kind = Kind::kJsonObject});
  const auto date = Compile({.kind = Kind::kRegex, .text = "[0-9]{4}-(0[1-9]|1[0-2])"});
  const auto sum =
      Compile({.kind = Kind::kGrammar, .text = "root ::= \"1\" (\"+\" [2-9]){2,3} \"=\""});
  for (int run = 0; run < 20; ++run) {
    const std::string text = RandomText(person->Begin().get(), &random);
    const Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(value.is_object()) << text;
    EXPECT_EQ(value.size(), 4u) << text;
    EXPECT_EQ(text.find("name") < text.find("age") && text.find("age") < text.find("kind"), true);
    EXPECT_LE(value["name"].get<std::string>().size(), 12u * 4);
    EXPECT_TRUE(value["age"].is_number_integer() && value["age"] >= 0 && value["age"] <= 150);
    EXPECT_TRUE(value["kind"] == "king" || value["kind"] == "son");
    EXPECT_LE(value["tags"].size(), 3u);
    EXPECT_TRUE(
        Json::parse(RandomText(object->Begin().get(), &random), nullptr, false).is_object());
    EXPECT_TRUE(std::regex_match(RandomText(date->Begin().get(), &random),
                                 std::regex("[0-9]{4}-(0[1-9]|1[0-2])")));
    EXPECT_TRUE(
        std::regex_match(RandomText(sum->Begin().get(), &random), std::regex("1([+][2-9]){2,3}=")));
  }
}

TEST_F(Constraints, TagsConstrainTheirContent) {
  const char* const calls =
      R"({"type": "tags_with_separator", "separator": "\n", "at_least_one": true,
          "tags": [{"type": "tag", "begin": "<f>", "end": "</f>",
                    "content": {"type": "json_schema", "json_schema":
                        {"type": "object", "properties": {"n": {"type": "integer"}},
                         "required": ["n"]}}},
                   {"type": "tag", "begin": "<g>", "end": "</g>",
                    "content": {"type": "json_schema", "strict": false,
                                "json_schema": {"type": "object"}}}]})";
  const auto constraint = Compile({.kind = Kind::kStructuralTag, .text = calls});
  EXPECT_TRUE(Takes(*constraint, R"(<f>{"n": 1}</f>)"));
  EXPECT_TRUE(Takes(*constraint, "<g>{\"x\": 1}</g>\n<f>{\"n\": 12}</f>"));
  EXPECT_FALSE(Takes(*constraint, R"(<f>{"n": "1"}</f>)"));
  EXPECT_FALSE(Takes(*constraint, R"(<f>{"n":  1}</f>)"));
  EXPECT_FALSE(Takes(*constraint, R"(<f>{"n": 1, "x": 1}</f>)"));
  EXPECT_FALSE(Takes(*constraint, "f"));
  const char* const triggered =
      R"({"type": "triggered_tags", "triggers": ["<f>"],
          "tags": [{"type": "tag", "begin": "<f>", "end": "</f>", "content":
                    {"type": "json_schema", "json_schema": {"type": "integer"}}}]})";
  const auto at_will = Compile({.kind = Kind::kStructuralTag, .text = triggered});
  EXPECT_TRUE(Takes(*at_will, "No < call"));
  EXPECT_TRUE(Takes(*at_will, "One <f>1</f>."));
  EXPECT_FALSE(Takes(*at_will, "One <f>x</f>"));
  EXPECT_THAT(ErrorOf({.kind = Kind::kStructuralTag, .text = R"({"type": "nothing"})"}),
              HasSubstr("nothing"));
  EXPECT_THAT(ErrorOf({.kind = Kind::kStructuralTag,
                       .text = R"({"type": "json_schema", "json_schema": {"not": {}}})"}),
              HasSubstr("not"));
}

TEST_F(Constraints, FindForcedText) {
  const auto constraint = Compile({.kind = Kind::kRegex, .text = "The answer is (yes|no)[.]"});
  const std::unique_ptr<ConstraintState> state = constraint->Begin();
  EXPECT_EQ(state->Forced(), "The answer is ");
  const std::vector<TokenId> tokens = *tokenizer->Encode("The answer is", SpecialTokens::kPlain);
  for (const TokenId token : tokens) ASSERT_TRUE(state->Accept(token));
  EXPECT_EQ(state->Forced(), " ");
}

// Row 120 of the bug catalogue: a long literal, and an endless one.
TEST_F(Constraints, FindForcedTextOnlyAsFarAsDraftsUseIt) {
  const std::string literal(20'000, 'a');
  for (const OutputConstraint& constraint :
       {OutputConstraint{.kind = Kind::kChoice, .choices = {literal}},
        OutputConstraint{.kind = Kind::kGrammar, .text = "root ::= \"a\" root"}}) {
    const auto compiled = Compile(constraint);
    ASSERT_NE(compiled, nullptr);
    const std::unique_ptr<ConstraintState> state = compiled->Begin();
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(state->Forced(), literal.substr(0, kMaxForcedBytes));
      EXPECT_TRUE(state->Accept(tokenizer->IdOf("a")));
      EXPECT_TRUE(state->status().ok()) << state->status();
    }
  }
}

TEST_F(Constraints, ErrorsNameTheUnsupportedPart) {
  const auto schema = [](const std::string& text) {
    return OutputConstraint{.kind = Kind::kJsonSchema, .text = text};
  };
  EXPECT_THAT(ErrorOf(schema("{")), HasSubstr("schema"));
  EXPECT_THAT(ErrorOf(schema("[1]")), HasSubstr("allowed: an object"));
  EXPECT_THAT(ErrorOf(schema(R"({"type": "thing"})")), HasSubstr("thing"));
  EXPECT_THAT(ErrorOf(schema(R"({"$ref": "#/nowhere"})")), HasSubstr("nowhere"));
  // Keywords that the library would ignore.
  EXPECT_THAT(ErrorOf(schema(R"({"type": "array", "uniqueItems": true})")),
              HasSubstr("uniqueItems"));
  EXPECT_THAT(ErrorOf(schema(R"({"not": {"type": "string"}})")), HasSubstr("not"));
  EXPECT_THAT(ErrorOf(schema(R"({"type": "number", "multipleOf": 0.5})")), HasSubstr("multipleOf"));
  EXPECT_THAT(ErrorOf(schema(R"({"type": "string", "pattern": "(ab)*", "maxLength": 3})")),
              HasSubstr("schema.maxLength: is not supported next to this pattern"));
  EXPECT_THAT(ErrorOf(schema(R"({"type": "string", "minLength": -1})")),
              HasSubstr("schema.minLength: found -1, allowed: an integer"));
  EXPECT_THAT(ErrorOf(schema(R"({"type": "object", "additionalProperties": {"contains": {}}})")),
              HasSubstr("schema.additionalProperties.contains: is not supported"));
  EXPECT_THAT(ErrorOf(schema(R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})")),
              HasSubstr("schema.oneOf: is not supported where a value could match both 0 and 1"));
  EXPECT_THAT(ErrorOf(schema(R"({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"},
                                "b": {"$ref": "#/$defs/a"}}})")),
              HasSubstr("leads back to itself"));
  EXPECT_THAT(ErrorOf(schema(R"({"allOf": [{"type": "string"}, {"type": "integer"}]})")),
              HasSubstr("no value satisfies it: schema.allOf.1: parts differ in type"));
  EXPECT_THAT(ErrorOf(schema(R"({"type": "object", "required": ["a"],
                                "additionalProperties": false})")),
              HasSubstr("schema.required names \"a\", which has no value"));
  EXPECT_THAT(ErrorOf({.kind = Kind::kRegex, .text = "(a"}), HasSubstr("constraint"));
  EXPECT_THAT(ErrorOf({.kind = Kind::kRegex, .text = "a(?=b)"}), HasSubstr("look"));
  EXPECT_THAT(ErrorOf({.kind = Kind::kGrammar, .text = "root ::= nothing"}), HasSubstr("nothing"));
  EXPECT_THAT(ErrorOf({.kind = Kind::kChoice}), HasSubstr("no choices"));
  EXPECT_THAT(ErrorOf({.kind = Kind::kChoice, .choices = {"a", ""}}), HasSubstr("empty"));
}

// Properties may have the names of unsupported keywords, and `uniqueItems` may be false.
TEST_F(Constraints, AcceptSchemasThatOnlyLookUnsupported) {
  for (const char* text :
       {R"({"type": "object", "properties": {"not": {"type": "null"}, "if": {"type": "null"}}})",
        R"({"type": "array", "items": {"type": "null"}, "uniqueItems": false})",
        R"({"$ref": "#/$defs/a", "$defs": {"a": {"type": "integer"}}, "default": 3})",
        R"({"type": "string", "anyOf": [{"type": "string", "minLength": 2}, {"const": ""}]})",
        R"({"type": "string", "format": "unheard-of", "x-order": 1, "deprecated": true})"}) {
    EXPECT_NE(Compile({.kind = Kind::kJsonSchema, .text = text}), nullptr) << text;
  }
}

// An escape counts as one character, and so do two that form a surrogate pair.
TEST_F(Constraints, CountCharactersOfStrings) {
  for (const int max : {1, 2, 127, 128, 129, 200}) {
    const auto bounded = Compile({.kind = Kind::kJsonSchema,
                                  .text = absl::StrCat(R"({"type": "string", "minLength": )",
                                                       max - 1, R"(, "maxLength": )", max, "}")});
    ASSERT_NE(bounded, nullptr);
    for (const char* character :
         {"a", "\xf0\x9f\x91\x8d", R"(\n)", R"(\")", R"(\u00e9)", R"(\ud83d\udc4d)"}) {
      std::string text = "\"";
      for (int i = 0; i < max - 1; ++i) text += character;
      EXPECT_FALSE(max > 1 &&
                   Takes(*bounded, text.substr(0, text.size() - std::strlen(character)) + "\""))
          << max << character;
      EXPECT_TRUE(Takes(*bounded, text + "\"")) << max << character;
      EXPECT_TRUE(Takes(*bounded, text + character + "\"")) << max << character;
      EXPECT_FALSE(Takes(*bounded, text + character + character + "\"")) << max << character;
    }
  }
}

TEST_F(Constraints, AcceptLengthBoundsOfAnySize) {
  for (const int max : {3999, 4000, 9999, 10'000, 1'000'000}) {
    const auto bounded =
        Compile({.kind = Kind::kJsonSchema,
                 .text = absl::StrCat(R"({"type": "string", "maxLength": )", max, "}")});
    ASSERT_NE(bounded, nullptr);
    EXPECT_TRUE(Takes(*bounded, R"("a")"));
  }
}

TEST_F(Constraints, MaskTokensThatMakeAStringTooLong) {
  const auto bounded = Compile({.kind = Kind::kJsonSchema, .text = R"({"type": "array", "items":
                                            {"type": "string", "minLength": 2, "maxLength": 3}})"});
  ASSERT_NE(bounded, nullptr);
  std::mt19937 random(9);
  for (int run = 0; run < 5; ++run) {
    const std::unique_ptr<ConstraintState> state = bounded->Begin();
    for (int i = 0; i < 40; ++i) {
      const std::vector<TokenId> allowed = AllowedBy(state.get());
      const std::set<TokenId> found(allowed.begin(), allowed.end());
      for (TokenId v = 0; v < vocab_size(); ++v) {
        const std::unique_ptr<ConstraintState> next = state->Clone();
        ASSERT_EQ(found.contains(v), next->Accept(v)) << v << " " << BytesOf(v);
      }
      if (allowed.empty()) break;
      ASSERT_TRUE(state->Accept(allowed[random() % allowed.size()]));
    }
    for (const Json& value : Json::parse(RandomText(bounded->Begin().get(), &random))) {
      const size_t bytes = value.get<std::string>().size();
      EXPECT_TRUE(bytes >= 2 && bytes <= 12) << value;
    }
  }
}

// Two alternative objects are followed at once: the string keeps to the bounds of both.
TEST_F(Constraints, CountStringsInAlternatives) {
  const auto either = Compile({.kind = Kind::kJsonSchema, .text = R"({"anyOf": [
      {"type": "object", "properties": {"a": {"type": "string", "maxLength": 300},
                                        "k": {"const": 1}},
       "required": ["a", "k"]},
      {"type": "object", "properties": {"a": {"type": "string", "maxLength": 4}, "k": {"const": 2}},
       "required": ["a", "k"]}]})"});
  ASSERT_NE(either, nullptr);
  EXPECT_TRUE(Takes(*either, R"({"a": "abcd", "k": 1})"));
  EXPECT_TRUE(Takes(*either, R"({"a": "abcd", "k": 2})"));
  EXPECT_FALSE(Takes(*either, R"({"a": "abcde", "k": 2})"));
  const auto literal = Compile({.kind = Kind::kJsonSchema, .text = R"({"anyOf": [
      {"enum": ["", "a longer one"]}, {"type": "string", "minLength": 2, "maxLength": 3}]})"});
  EXPECT_TRUE(Takes(*literal, R"("")"));
  EXPECT_TRUE(Takes(*literal, R"("a longer one")"));
  EXPECT_TRUE(Takes(*literal, R"("abc")"));
  EXPECT_FALSE(Takes(*literal, R"("a")"));
  EXPECT_FALSE(Takes(*literal, R"("abcd")"));
}

TEST_F(Constraints, StringsMayContainEscapes) {
  const auto code = Compile({.kind = Kind::kJsonSchema, .text = R"({"type": "object", "properties":
                                         {"code": {"type": "string", "minLength": 1}},
                                         "required": ["code"]})"});
  EXPECT_TRUE(Takes(*code, R"({"code": "print(\"a\\n\")\n"})"));
  const auto pattern = Compile(
      {.kind = Kind::kJsonSchema, .text = R"({"type": "string", "pattern": "^[^x]{0,200}$"})"});
  EXPECT_TRUE(Takes(*pattern, R"("\"\\\n\u0001")"));
  EXPECT_FALSE(Takes(*pattern, R"("x")"));
  const auto any = Compile({.kind = Kind::kJsonSchema, .text = R"({"type": "string"})"});
  EXPECT_TRUE(Takes(*any, R"("\ud83d\udc4d")"));
  EXPECT_FALSE(Takes(*any, R"("\ud83d")"));
  EXPECT_FALSE(Takes(*any, R"("\udc4d")"));
}

TEST_F(Constraints, ChoicesMayContainAnyCharacter) {
  const auto choice = Compile({.kind = Kind::kChoice,
                               .choices = {"yes \xf0\x9f\x91\x8d",
                                           "no \"\\\n\x01"
                                           "1"}});
  EXPECT_TRUE(Takes(*choice, "yes \xf0\x9f\x91\x8d"));
  EXPECT_TRUE(Takes(*choice,
                    "no \"\\\n\x01"
                    "1"));
  EXPECT_THAT(ErrorOf({.kind = Kind::kChoice, .choices = {"\xff"}}), HasSubstr("not UTF-8"));
}

TEST_F(Constraints, DotDoesNotMatchLineBreaks) {
  const auto line = Compile({.kind = Kind::kRegex, .text = ".{1,200}"});
  EXPECT_TRUE(Takes(*line, "abc"));
  EXPECT_FALSE(Takes(*line, "a\nb"));
}

TEST_F(Constraints, HaveLimits) {
  EXPECT_THAT(ErrorOf({.kind = Kind::kRegex, .text = std::string(size_t{300} << 10, 'a')}),
              HasSubstr("bytes, allowed: 262144"));
  EXPECT_THAT(
      ErrorOf({.kind = Kind::kRegex, .text = std::string(200, '(') + "a" + std::string(200, ')')}),
      HasSubstr("200 nested brackets"));
  const TokenId no_end = tokenizer->Encode("a", SpecialTokens::kPlain)->front();
  EXPECT_THAT(compiler->Compile({.kind = Kind::kJsonObject}, {{no_end}}).status().message(),
              HasSubstr("special token"));
}

// Several threads compile more constraints than are kept.
TEST_F(Constraints, AreCompiledConcurrently) {
  ConstraintCompiler small(tokenizer.get(), vocab_size(), {.max_kept_bytes = 100 << 10});
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 4; ++i) {
        const std::string word = absl::StrCat("word", (t + i) % 5);
        const auto constraint =
            small.Compile({.kind = Kind::kRegex, .text = word}, {{end}}).value();
        EXPECT_EQ(constraint->Begin()->Forced(), word);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ConstraintsWithoutAnEngine, AreRejectedWithTheReason) {
  if (HasGrammarEngine()) GTEST_SKIP() << "this build has a grammar engine";
  const auto tokenizer = *Tokenizer::Load(SourcePath("models/storyteller-7m"));
  ConstraintCompiler compiler(tokenizer.get(), tokenizer->vocab_size(), {});
  const TokenId end = tokenizer->IdOf("<|endoftext|>");
  const auto compiled = compiler.Compile({.kind = Kind::kJsonObject}, {{end}});
  EXPECT_EQ(compiled.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(compiled.status().message(), HasSubstr("no grammar engine"));
}

}  // namespace
}  // namespace tandem
