#include "tools/man_page.h"

#include <map>
#include <string>

#include "CLI/CLI.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/help_text.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

TEST(ManPage, DescribesACommandAndThoseBelowIt) {
  CLI::App app("Does something.", "program");
  CLI::App* const command = app.add_subcommand("run", "Run it");
  app.add_subcommand("hidden", "For scripts")->group("");
  command->add_option("FILE", "'.' is the folder")->required();
  command->add_option("-s,--seed", "Seed, as in C:\\x")->type_name("N")->group("Numbers");
  command->add_flag("--secret")->group("");
  command->footer("Also:\n.x   a row\nThe end.");
  AddExamples(command, {"program run --seed 1"});
  const std::map<std::string, std::string> pages = ManPagesOf(&app, "1.2");
  EXPECT_THAT(
      pages, ElementsAre(Pair("program", HasSubstr("\n.SH COMMANDS\n.TP\n\\fBprogram\\-run\\fR(1)\n"
                                                   "Run it\n.SH OPTIONS\n")),
                         Pair("program-run", Not(HasSubstr("secret")))));
  EXPECT_THAT(pages.at("program"), Not(HasSubstr("hidden")));
  EXPECT_EQ(pages.at("program-run"),
            ".TH PROGRAM\\-RUN 1 \"\" \"tandem 1.2\" \"User Commands\"\n"
            ".SH NAME\nprogram\\-run \\- Run it\n"
            ".SH SYNOPSIS\n\\fBprogram run\\fR [\\fIOPTIONS\\fR] FILE\n"
            ".SH ARGUMENTS\n.TP\n\\fBFILE\\fR \\fIREQUIRED\\fR\n\\&'.' is the folder\n"
            ".SH OPTIONS\n.TP\n\\fB\\-h,\\-\\-help\\fR\nPrint this help message and exit\n"
            ".SS Numbers\n.TP\n\\fB\\-s,\\-\\-seed\\fR \\fIN\\fR\nSeed, as in C:\\ex\n"
            ".SH NOTES\nAlso:\n.PP\n.nf\n\\&.x   a row\n.fi\n.PP\nThe end.\n"
            ".SH EXAMPLES\n.nf\nprogram run \\-\\-seed 1\n.fi\n"
            ".SH SEE ALSO\n\\fBprogram\\fR(1)\n");
}

}  // namespace
}  // namespace tandem
