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
#include "tools/command.h"
#include "tools/command_line.h"
#include "tools/help_text.h"

namespace tandem {
namespace {

// The commands that users type.
class Program {
 public:
  explicit Program(int width) {
    app_.formatter(MakeHelpFormatter(width));
    for (const auto add :
         {AddGenerateCommand, AddChatCommand, AddFetchCommand, AddTokenizeCommand,
          AddInspectCommand, AddMakeRandomCommand, AddQuantizeCommand, AddBenchCommand,
          AddLabCommand, AddVerifyLosslessCommand, AddServeCommand, AddKvStoreCommand,
          AddCacheCommand, AddFeaturesCommand, AddHelpCommand}) {
      commands_.push_back(add(&app_));
    }
  }
  CLI::App* app() { return &app_; }
  std::vector<const CLI::App*> All() const {
    std::vector<const CLI::App*> all;
    AddTo(&app_, &all);
    return all;
  }

 private:
  static void AddTo(const CLI::App* app, std::vector<const CLI::App*>* all) {
    for (const CLI::App* command : app->get_subcommands(nullptr)) {
      all->push_back(command);
      AddTo(command, all);
    }
  }

  CLI::App app_{"", "tandem"};
  std::vector<Command> commands_;
};

// Whether the line is a row of the table of shapes.
bool IsRowOfShapes(absl::string_view line) {
  return absl::EndsWith(line, " MB") || absl::EndsWith(line, " size");
}

TEST(HelpOfCommands, FitsIntoTerminals) {
  for (const int width : {60, 80}) {
    const Program program(width);
    for (const CLI::App* command : program.All()) {
      for (const absl::string_view line : absl::StrSplit(HelpOf(command), '\n')) {
        if (IsRowOfShapes(line)) continue;
        EXPECT_LE(static_cast<int>(line.size()), width) << FullName(command) << ": " << line;
      }
    }
  }
}

TEST(HelpOfCommands, EndsWithCommandLinesThatParse) {
  const Program program(80);
  for (const CLI::App* command : program.All()) {
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
      EXPECT_NO_THROW(Program(80).app()->parse(std::string(line))) << example;
    }
  }
}

}  // namespace
}  // namespace tandem
