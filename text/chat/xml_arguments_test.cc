#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/source_path_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tandem/json_value.h"
#include "tandem/tokenizer.h"
#include "text/chat/tool_tags.h"
#include "text/constraint/grammar_engine.h"

namespace tandem {
namespace {

using OrderedJson = JsonValue;
using testing::HasSubstr;

// A grammar of arguments, which tells whether it accepts a complete text.
class XmlGrammar {
 public:
  explicit XmlGrammar(const std::string& schema, bool is_strict = true,
                      ToolFormat::Family family = ToolFormat::Family::kQwenXml) {
    const auto format =
        XmlArguments(OrderedJson::parse(schema), is_strict, ToolFormat::Of(family).Parameter());
    EXPECT_TRUE(format.ok()) << format.status();
    const OrderedJson tag = {
        {"type", "tag"}, {"begin", "<f>\n"}, {"content", *format}, {"end", "</f>"}};
    auto grammar =
        Engine().Compile({.kind = OutputConstraint::Kind::kStructuralTag, .text = tag.dump()});
    EXPECT_TRUE(grammar.ok()) << grammar.status() << "\n" << tag;
    const TokenId ends[] = {Words().IdOf("<|endoftext|>")};
    constraint_ = (*grammar)->EndingIn(ends);
  }

  bool Takes(const std::string& parameters) const {
    const auto ids =
        Words().Encode(absl::StrCat("<f>\n", parameters, "</f>"), SpecialTokens::kPlain);
    const auto state = constraint_->Begin();
    for (const TokenId id : *ids) {
      if (!state->Accept(id)) return false;
    }
    return state->Accept(Words().IdOf("<|endoftext|>"));
  }

 private:
  static const Tokenizer& Words() {
    static const Tokenizer& words =
        *Tokenizer::Load(SourcePath("models/storyteller-7m"))->release();
    return words;
  }
  static const GrammarEngine& Engine() {
    static const GrammarEngine& engine =
        *GrammarEngine::Make(Words(), Words().vocab_size())->release();
    return engine;
  }

  std::shared_ptr<const TokenConstraint> constraint_;
};

std::string XmlParameter(const std::string& name, const std::string& value) {
  return absl::StrCat("<parameter=", name, ">\n", value, "\n</parameter>\n");
}

TEST(XmlArguments, FollowTheirSchema) {
  if (!HasGrammarEngine()) GTEST_SKIP() << "this build has no grammar engine";
  const XmlGrammar grammar(R"({"type": "object", "properties": {
      "s": {"type": "string"}, "n": {"type": "integer"}, "e": {"enum": ["a b", 1, null]},
      "o": {"$ref": "#/$defs/o"}, "m": {"type": ["string", "null"]}},
      "$defs": {"o": {"type": "object", "properties": {"x": {"type": "boolean"}},
                      "required": ["x"]}},
      "required": ["s", "n"]})");
  const std::string least = XmlParameter("s", "Paris \"<b>\"\n\n</x>") + XmlParameter("n", "-5");
  EXPECT_TRUE(grammar.Takes(least));
  EXPECT_TRUE(grammar.Takes(least + XmlParameter("e", "a b")));
  EXPECT_TRUE(grammar.Takes(least + XmlParameter("e", "null") + XmlParameter("o", "{\"x\": true}") +
                            XmlParameter("m", "null")));
  EXPECT_FALSE(grammar.Takes(XmlParameter("s", "Paris")));
  EXPECT_FALSE(grammar.Takes(XmlParameter("n", "5") + XmlParameter("s", "Paris")));
  EXPECT_FALSE(grammar.Takes(XmlParameter("s", "Paris") + XmlParameter("n", "five")));
  EXPECT_FALSE(grammar.Takes(least + XmlParameter("e", "b")));
  EXPECT_FALSE(grammar.Takes(least + XmlParameter("o", "{\"x\": 1}")));
  EXPECT_FALSE(grammar.Takes(least + XmlParameter("z", "1")));
  EXPECT_FALSE(grammar.Takes("<parameter=s>Paris</parameter>\n" + XmlParameter("n", "5")));
}

TEST(XmlArguments, FollowTheirSchemaInGlmFormat) {
  if (!HasGrammarEngine()) GTEST_SKIP() << "this build has no grammar engine";
  const std::string n = "<arg_key>n</arg_key>\n<arg_value>-5</arg_value>\n";
  const std::string s = "<arg_key>s</arg_key>\n<arg_value>a <b>\n\"</arg_value>\n";
  const XmlGrammar grammar(R"({"type": "object", "properties": {"s": {"type": "string"},
      "n": {"type": "integer"}}, "required": ["n"]})",
                           /*is_strict=*/true, ToolFormat::Family::kGlm);
  EXPECT_TRUE(grammar.Takes(s + n));
  EXPECT_TRUE(grammar.Takes(n));
  EXPECT_FALSE(grammar.Takes(s));
  EXPECT_FALSE(grammar.Takes("<arg_key>n</arg_key>\n<arg_value>five</arg_value>\n"));
  EXPECT_FALSE(grammar.Takes(XmlParameter("n", "5")));
  EXPECT_FALSE(grammar.Takes(n + "<arg_key>z</arg_key>\n<arg_value>1</arg_value>\n"));
  const XmlGrammar any(R"({"type": "object"})", /*is_strict=*/false, ToolFormat::Family::kGlm);
  EXPECT_TRUE(any.Takes(n + s));
}

TEST(XmlArguments, StringsKeepToTheirBounds) {
  if (!HasGrammarEngine()) GTEST_SKIP() << "this build has no grammar engine";
  const XmlGrammar pattern(R"({"properties": {"s": {"type": "string", "pattern": "^[a-c]{2}$"}},
                               "required": ["s"]})");
  EXPECT_TRUE(pattern.Takes(XmlParameter("s", "ab")));
  EXPECT_FALSE(pattern.Takes(XmlParameter("s", "abc")));
  const XmlGrammar length(R"({"properties": {"s": {"type": "string", "minLength": 2,
                              "maxLength": 3}}, "required": ["s"]})");
  EXPECT_TRUE(length.Takes(XmlParameter("s", "xyz")));
  EXPECT_FALSE(length.Takes(XmlParameter("s", "x")));
  EXPECT_FALSE(length.Takes(XmlParameter("s", "wxyz")));
  const XmlGrammar choice(R"({"properties": {"s": {"anyOf": [{"const": "x"},
      {"type": "string", "pattern": "[0-9]+"}]}}, "required": ["s"]})");
  EXPECT_TRUE(choice.Takes(XmlParameter("s", "x")));
  EXPECT_TRUE(choice.Takes(XmlParameter("s", "17")));
  EXPECT_FALSE(choice.Takes(XmlParameter("s", "y")));
}

TEST(XmlArguments, MayHaveAdditionalParametersIfTheSchemaAllows) {
  if (!HasGrammarEngine()) GTEST_SKIP() << "this build has no grammar engine";
  const XmlGrammar any(R"({"type": "object"})", /*is_strict=*/false);
  EXPECT_TRUE(any.Takes(""));
  EXPECT_TRUE(any.Takes(XmlParameter("a", "1") + XmlParameter("b_c", "x")));
  const XmlGrammar none(R"({"type": "object"})", /*is_strict=*/true);
  EXPECT_TRUE(none.Takes(""));
  EXPECT_FALSE(none.Takes(XmlParameter("a", "1")));
  const XmlGrammar numbers(R"({"additionalProperties": {"type": "integer"}})");
  EXPECT_TRUE(numbers.Takes(XmlParameter("a", "1") + XmlParameter("b", "2")));
  EXPECT_FALSE(numbers.Takes(XmlParameter("a", "x")));
}

TEST(XmlArguments, RejectSchemasThatTheFormatCannotExpress) {
  const struct {
    const char* schema;
    const char* part;
  } cases[] = {
      {R"({"anyOf": [{"type": "object"}]})", "anyOf"},
      {R"({"patternProperties": {"a": {}}})", "patternProperties"},
      {R"({"$ref": "#/nowhere"})", "$ref"},
      {R"({"properties": {"a>b": {}}})", "a>b"},
      {R"({"properties": {"p": {"anyOf": [{"type": "string"}, {"type": "integer",
          "minimum": 3}]}}})",
       "parameter \"p\": a choice between a string"},
      {R"({"properties": {"p": {"type": "string", "pattern": "a", "maxLength": 1}}})", "length"},
      {R"({"properties": {"p": {"$ref": "#/nowhere"}}})", "#/nowhere"},
      {R"({"properties": {"p": {"$ref": "#/$defs/r"}}, "$defs": {"r": {"type": "string",
          "anyOf": [{"$ref": "#/$defs/r"}, {"const": "a"}]}}})",
       "so many"}};
  for (const auto& c : cases) {
    const auto format = XmlArguments(OrderedJson::parse(c.schema), /*is_strict=*/true,
                                     ToolFormat::Of(ToolFormat::Family::kQwenXml).Parameter());
    ASSERT_FALSE(format.ok()) << c.schema;
    EXPECT_THAT(std::string(format.status().message()), HasSubstr(c.part));
  }
}

}  // namespace
}  // namespace tandem
