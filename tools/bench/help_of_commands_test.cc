// The help of every command: its width and its examples.
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/command_line.h"
#include "tools/help_text.h"
#include "tools/program.h"

namespace tandem {
namespace {

// Adds the commands of `app`, and theirs, that its help lists.
void AddListed(const CLI::App* app, std::vector<const CLI::App*>* listed) {
  for (const CLI::App* command : app->get_subcommands(nullptr)) {
    if (command->get_group().empty()) continue;
    listed->push_back(command);
    AddListed(command, listed);
  }
}

std::vector<const CLI::App*> ListedCommands(Program* program) {
  std::vector<const CLI::App*> listed;
  AddListed(program->app(), &listed);
  return listed;
}

// Whether the line is a row of the table of shapes.
bool IsRowOfShapes(absl::string_view line) {
  return absl::EndsWith(line, " MB") || absl::EndsWith(line, " size");
}

TEST(HelpOfCommands, FitsIntoTerminals) {
  for (const int width : {60, 80}) {
    Program program(width, "version");
    for (const CLI::App* command : ListedCommands(&program)) {
      for (const absl::string_view line : absl::StrSplit(HelpOf(command), '\n')) {
        if (IsRowOfShapes(line)) continue;
        EXPECT_LE(static_cast<int>(line.size()), width) << FullName(command) << ": " << line;
      }
    }
  }
}

TEST(HelpOfCommands, EndsWithCommandLinesThatParse) {
  Program program(80, "version");
  for (const CLI::App* command : ListedCommands(&program)) {
    SCOPED_TRACE(FullName(command));
    const std::vector<std::string> examples = ExamplesOf(command);
    EXPECT_GE(examples.size(), 2u);
    EXPECT_LE(examples.size(), 3u);
    for (const std::string& example : examples) {
      absl::string_view line = example;
      EXPECT_TRUE(absl::ConsumePrefix(&line, "tandem ")) << example;
      EXPECT_TRUE(
          absl::StartsWith(absl::StrCat(example, " "), absl::StrCat(FullName(command), " ")))
          << example;
      EXPECT_NO_THROW(Program(80, "").app()->parse(std::string(line))) << example;
    }
  }
}

}  // namespace
}  // namespace tandem
