#include "tests/tidy/document_rules.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::tidy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(SourceText, ProseOnlyBlanksCodeAndKeepsLines) {
  EXPECT_EQ(ProseOnly("a `b` c\n"), "a     c\n");
  EXPECT_EQ(ProseOnly("a `b\nc` d ``e`f``\n"), "a   \n   d        \n");
  EXPECT_EQ(ProseOnly("a ` b\n\nc ` d\n"), "a ` b\n\nc ` d\n");
  EXPECT_EQ(ProseOnly("a ` b\n  ```sh\n.5 `\n  ```\nc\n"), "a ` b\n       \n    \n     \nc\n");
}

TEST(Documents, AreWrappedExceptTablesCodeAndUrls) {
  const std::string url =
      "https:"
      "//";
  const std::string wide(121, 'x');
  EXPECT_THAT(CheckDocumentWidth({{"a.md", std::string(120, 'x') + "\n"},
                                  {"b.md", "| " + wide + " |\n"},
                                  {"c.md", "```\n" + wide + "\n```\n"},
                                  {"d.md", url + wide + "\n"},
                                  {"f.md", "see `" + std::string(130, 'x') + "`\n"},
                                  {"e.txt", wide + "\n"}}),
              IsEmpty());
  EXPECT_THAT(CheckDocumentWidth({{"a.md", "```\n```\n" + wide + "\n"}}),
              ElementsAre(HasSubstr("a.md:3: is longer")));
  EXPECT_THAT(CheckDocumentWidth({{"a.md", "`a` and `b`" + wide + "\n"}}), SizeIs(1));
}

TEST(Documents, GiveNumbersAZero) {
  EXPECT_THAT(CheckNumbersHaveZeros({{"a.md",
                                      "0.5, 1.53 of v1.2.3, `.5`, a...5, a.5 [x](a/.5.md)\n"
                                      "```\n.53\n```\n"},
                                     {"a.cc", "// .5\n"}}),
              IsEmpty());
  for (const std::string number : {".53", "a (.5 b", "| -.5 |", "1 to .9", "\u2248.5"}) {
    EXPECT_THAT(CheckNumbersHaveZeros({{"docs/a.md", "a\n" + number + "\n"}}),
                ElementsAre(HasSubstr("docs/a.md:2: a number without a digit")))
        << number;
  }
}

TEST(Documents, AreShort) {
  const auto words = [](int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += i % 10 == 9 ? "a\n" : "a ";
    return text;
  };
  EXPECT_THAT(CheckPageLength({{"docs/a.md", words(1200)},
                               {"docs/bug_catalogue.md", words(1300)},
                               {"README.md", words(1300)}}),
              IsEmpty());
  EXPECT_THAT(CheckPageLength({{"docs/b/a.md", words(1201)}}),
              ElementsAre(HasSubstr("docs/b/a.md:1: has 1201 words, allowed: 1200")));
  EXPECT_THAT(CheckPageLength({{"docs/bug_catalogue.md", words(20000)}}), SizeIs(1));
}

}  // namespace
}  // namespace tandem::tidy
