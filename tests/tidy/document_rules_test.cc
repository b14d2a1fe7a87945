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

}  // namespace
}  // namespace tandem::tidy
