#include "proof/remote/remote_form.h"

#include <set>
#include <string>

#include "gtest/gtest.h"

namespace tandem {
namespace {

enum Judgement { kInvalid, kBeginning, kComplete };
Judgement JudgementOf(const RemoteForm& form, const std::string& text) {
  const FormMatch match = Match(form, text);
  return match.is_complete ? kComplete : match.is_valid() ? kBeginning : kInvalid;
}

TEST(Match, JudgesEveryBeginningOfAText) {
  const struct {
    int form;
    const char* text;
  } cases[] = {{0, R"({"color": "blue", "count": 10, "done": true})"},
               {0, "{\n\t\"color\":\"red\",\"count\":7 ,\"done\":false }"},
               {1, "dark blue"},
               {2, "ace-07"}};
  for (const auto& [form, text] : cases) {
    const RemoteForm by = ProofForms()[form];
    const std::string whole = text;
    for (size_t i = 0; i < whole.size(); ++i) {
      EXPECT_EQ(JudgementOf(by, whole.substr(0, i)), kBeginning) << whole.substr(0, i);
      // Neither a byte of no form nor the end of the text is allowed anywhere within.
      EXPECT_EQ(JudgementOf(by, whole.substr(0, i) + "~"), kInvalid) << i;
    }
    EXPECT_EQ(JudgementOf(by, whole), kComplete);
    EXPECT_EQ(JudgementOf(by, whole + "x"), kInvalid);
  }
}

TEST(Match, RefusesOtherTexts) {
  const RemoteForm schema = ProofForms()[0];
  for (const char* text :
       {R"({"color": "pink)", R"({"count": 1)", R"({"color": "red", "count": 100)",
        R"({"color": "red", "count": 07)", R"({"color": "red", "count": 1 0)", R"({"color": "r ed)",
        R"({"color": "red", "done": true)", R"({"color": "red", "count": 1, "done": true, )",
        R"( x)"}) {
    EXPECT_EQ(JudgementOf(schema, text), kInvalid) << text;
  }
  EXPECT_EQ(JudgementOf(ProofForms()[2], "abc -"), kInvalid);
  EXPECT_EQ(JudgementOf(ProofForms()[2], "abg"), kInvalid);
  EXPECT_EQ(JudgementOf(ProofForms()[1], "Red"), kInvalid);
}

TEST(Match, TellsWhatMayFollow) {
  const RemoteForm choice = ProofForms()[1];
  const std::string first = Match(choice, "").next;
  EXPECT_EQ(std::set<char>(first.begin(), first.end()), (std::set<char>{'r', 'd'}));
  EXPECT_TRUE(Match(choice, "red").is_complete);
  EXPECT_EQ(Match(choice, "red").next, "d");
  EXPECT_EQ(Match(choice, "reddish").next, "");
  EXPECT_EQ(Match(LawForm(), "\"abcdefabcdef").next, "\"");
}

}  // namespace
}  // namespace tandem
