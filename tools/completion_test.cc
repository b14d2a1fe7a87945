#include "tools/completion.h"

#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tandem/drafter_kind.h"
#include "tools/option_group.h"

namespace tandem {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

using Words = std::vector<std::string>;

class CommandLineCompletion : public testing::Test {
 protected:
  CommandLineCompletion() {
    app_.fallthrough();
    OptionGroup(&app_).Add("--log-level", "L", &text_, "Level", OneOf{{"info", "off"}});
    CLI::App* const serve = app_.add_subcommand("serve", "Serves. Long.");
    OptionGroup group(serve);
    group.Add("-m,--target", "PATH", &text_, "The model [none]");
    group.Add("--threads", "N", &number_, "Threads");
    group.Add("--drafter", "NAME", &drafter_, "Drafter", ParseDrafterKind);
    group.Add("--config", "F.toml", &text_, "A file");
    group.Add("--host", "H", &text_, "A host");
    group.AddFlag("--json", &flag_, "JSON");
    CLI::App* const bench = app_.add_subcommand("bench");
    bench->add_subcommand("kernels")->add_option("DIR", text_);
    app_.add_subcommand("rank")->group("");
  }

  Words Names(const Words& words) {
    Words names;
    for (const auto& [name, help] : CompletionsOf(&app_, words).words) names.push_back(name);
    return names;
  }
  bool HasFiles(const Words& words) { return CompletionsOf(&app_, words).has_files; }

  CLI::App app_{"", "tandem"};

 private:
  std::string text_;
  int number_ = 0;
  bool flag_ = false;
  DrafterKind drafter_ = DrafterKind::kAuto;
};

TEST_F(CommandLineCompletion, NamesCommands) {
  EXPECT_THAT(Names({""}), ElementsAre("serve", "bench"));
  EXPECT_THAT(Names({"se"}), ElementsAre("serve"));
  EXPECT_THAT(Names({"bench", ""}), ElementsAre("kernels"));
  EXPECT_THAT(Names({"serve", ""}), IsEmpty());
  EXPECT_THAT(Names({"nothing", "--x", ""}), ElementsAre("serve", "bench"));
  EXPECT_THAT(Names({}), IsEmpty());
  EXPECT_EQ(CompletionsOf(&app_, {"s"}).words[0].second, "Serves");
}

TEST_F(CommandLineCompletion, NamesOptions) {
  EXPECT_THAT(Names({"serve", "--t"}), ElementsAre("--target", "--threads"));
  EXPECT_THAT(Names({"serve", "-"}), Contains("--log-level"));
  EXPECT_THAT(Names({"-"}), Not(Contains("--target")));
  EXPECT_EQ(CompletionsOf(&app_, {"serve", "--ta"}).words[0].second, "The model");
  EXPECT_THAT(Names({"serve", "-hf", "--t"}), IsEmpty());
}

TEST_F(CommandLineCompletion, NamesTheValuesOfOptions) {
  EXPECT_THAT(Names({"serve", "--log-level", ""}), ElementsAre("info", "off"));
  EXPECT_THAT(Names({"serve", "--log-level", "o"}), ElementsAre("off"));
  EXPECT_THAT(Names({"serve", "--log-level=o"}), ElementsAre("--log-level=off"));
  EXPECT_THAT(Names({"serve", "--log-level", "="}), ElementsAre("info", "off"));
  EXPECT_THAT(Names({"serve", "--log-level", "=", "o"}), ElementsAre("off"));
  EXPECT_THAT(Names({"serve", "--log-level=off", "--js"}), ElementsAre("--json"));
  EXPECT_THAT(Names({"serve", "--json", "--js"}), ElementsAre("--json"));
  EXPECT_THAT(Names({"serve", "--drafter", "n"}), Contains("ngram"));
  EXPECT_THAT(Names({"serve", "--threads", ""}), IsEmpty());
}

TEST_F(CommandLineCompletion, NamesModelsAndFiles) {
  EXPECT_THAT(Names({"serve", "-m", "story"}), ElementsAre("storyteller-7m", "storyteller-1m"));
  EXPECT_THAT(Names({"serve", "--model", "smollm2"}), Contains("smollm2"));
  EXPECT_TRUE(HasFiles({"serve", "-m", ""}));
  EXPECT_TRUE(HasFiles({"serve", "--config", ""}));
  EXPECT_TRUE(HasFiles({"bench", "kernels", ""}));
  EXPECT_FALSE(HasFiles({"serve", "--host", ""}));
  EXPECT_FALSE(HasFiles({"serve", ""}));
}

}  // namespace
}  // namespace tandem
