#include "tools/help_text.h"

#include <cstdlib>
#include <string>

#include "CLI/CLI.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/command_line.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The help of a program with one option, at this width.
std::string HelpAt(int width, const std::string& footer = "") {
  CLI::App app("Does something.", "program");
  app.formatter(MakeHelpFormatter(width));
  app.add_option("--draft-tokens", "Most tokens proposed per round; 0 is plain decoding [auto]")
      ->type_name("N");
  app.footer(footer);
  return HelpOf(&app);
}

TEST(HelpText, WrapsDescriptionsInTheirColumn) {
  EXPECT_THAT(
      HelpAt(80),
      HasSubstr("\n  --draft-tokens N            Most tokens proposed per round; 0 is plain\n"
                "                              decoding [auto]\n"));
}

TEST(HelpText, PutsDescriptionsBelowNamesOnNarrowTerminals) {
  EXPECT_THAT(HelpAt(60), HasSubstr("\n  --draft-tokens N\n"
                                    "      Most tokens proposed per round; 0 is plain decoding\n"
                                    "      [auto]\n"));
}

TEST(HelpText, WrapsFootersExceptTables) {
  const std::string help = HelpAt(40,
                                  "A paragraph that is longer than a line of this help.\n"
                                  "/reset   forgets the conversation, except the system message\n"
                                  "tiny  64  4  2  16  176  320  512  1  0.1 M  0.2 MB");
  EXPECT_THAT(help, HasSubstr("A paragraph that is longer than a line\nof this help.\n"));
  EXPECT_THAT(help, HasSubstr("/reset   forgets the conversation,\n"
                              "         except the system message\n"));
  EXPECT_THAT(help, HasSubstr("tiny  64  4  2  16  176  320  512  1  0.1 M  0.2 MB\n"));
}

TEST(HelpText, EndsWithExamples) {
  CLI::App app("Does something.", "program");
  EXPECT_THAT(ExamplesOf(&app), IsEmpty());
  app.footer("A paragraph.");
  AddExamples(&app, {"program a", "program b \\\n      --out c"});
  EXPECT_THAT(
      HelpOf(&app),
      EndsWith("\nA paragraph.\n\nExamples:\n  program a\n  program b \\\n      --out c\n"));
  EXPECT_THAT(ExamplesOf(&app), ElementsAre("program a", "program b       --out c"));
}

TEST(HelpText, TakesTheWidthFromTheEnvironment) {
  setenv("COLUMNS", "61", 1);
  EXPECT_EQ(HelpWidth(), 61);
  setenv("COLUMNS", "3", 1);
  EXPECT_EQ(HelpWidth(), 40);
  unsetenv("COLUMNS");
}

}  // namespace
}  // namespace tandem
