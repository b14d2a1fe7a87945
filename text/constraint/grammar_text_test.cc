#include "text/constraint/grammar_text.h"

#include "gtest/gtest.h"

namespace tandem {
namespace {

TEST(GrammarText, WritesOnlyNeededRules) {
  GrammarText grammar;
  const int unused = grammar.AddRule();
  grammar.SetRule(unused, TextExpr("x"));
  const int word = grammar.AddRule();
  grammar.SetRule(word, RegexExpr("[a-z]+"), /*mark=*/3);
  EXPECT_EQ(grammar.Write(Sequence({TextExpr("a\"\\\n"), Repeat(RuleExpr(word), 1, -1)})),
            "root ::= (\"a\\\"\\\\\\n\" (r1){1,})\nr1[temperature=3] ::= Regex(\"[a-z]+\")\n");
}

TEST(GrammarText, OmitsPartsThatMatchNoFiniteText) {
  GrammarText grammar;
  const int endless = grammar.AddRule();
  grammar.SetRule(endless, Sequence({TextExpr("("), RuleExpr(endless), TextExpr(")")}));
  EXPECT_EQ(grammar.Write(RuleExpr(endless)), "");
  EXPECT_EQ(grammar.Write(Choice({RuleExpr(endless), TextExpr("a")})), "root ::= (\"a\")\n");
  EXPECT_EQ(grammar.Write(Sequence({TextExpr("a"), Optional(RuleExpr(endless))})),
            "root ::= (\"a\" \"\")\n");
  const int list = grammar.AddRule();
  grammar.SetRule(list, Choice({TextExpr("b"), Sequence({TextExpr("a"), RuleExpr(list)})}));
  EXPECT_NE(grammar.Write(RuleExpr(list)), "");
}

TEST(GrammarText, SimplifiesExpressionsWithoutMatches) {
  EXPECT_TRUE(Sequence({TextExpr("a"), GrammarExpr()}).is_nothing());
  EXPECT_TRUE(Choice({GrammarExpr(), GrammarExpr()}).is_nothing());
  EXPECT_TRUE(Repeat(GrammarExpr(), 1, 2).is_nothing());
  EXPECT_TRUE(Repeat(TextExpr("a"), 3, 2).is_nothing());
  EXPECT_EQ(Repeat(GrammarExpr(), 0, 2).text, "");
}

}  // namespace
}  // namespace tandem
