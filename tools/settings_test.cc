#include "tools/settings.h"

#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/folder_testing.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using Words = std::vector<std::string>;

class Settings : public testing::Test {
 protected:
  Settings() {
    app_.set_version_flag("--version", "1");
    app_.fallthrough();
    app_.add_option("--log-level", text_);
    CLI::App* const serve = app_.add_subcommand("serve");
    CLI::App* const bench = app_.add_subcommand("bench");
    for (CLI::App* command :
         {serve, bench->add_subcommand("kernels"), bench->add_subcommand("speculation")}) {
      for (const char* name : {"-k,--draft-tokens", "-m,--target", "--config"}) {
        command->add_option(name, text_);
      }
      command->add_flag("--json");
    }
    serve->add_option("--stop", list_);
    serve->add_option("--api-key", text_);
    serve->add_option("--api-key-file", text_)->excludes("--api-key");
    bench->get_subcommand("speculation")->add_option("--runs", text_);
    app_.add_subcommand("fetch")->add_option("name", text_);
  }

  // The words after the command line `typed` got the settings.
  absl::StatusOr<Words> Given(const Words& typed, const Words& environment = {},
                              const std::string& file = "") {
    folder_.Write("settings.toml", file);
    std::vector<const char*> variables;
    for (const std::string& variable : environment) variables.push_back(variable.c_str());
    variables.push_back(nullptr);
    ASSIGN_OR_RETURN(TypedWords words, WordsOf(&app_, typed));
    ASSIGN_OR_RETURN(const auto entries, WithSettings(&app_, std::move(words), variables.data()));
    return WordsIn(entries);
  }
  std::string ErrorOf(const Words& typed, const Words& environment, const std::string& file = "") {
    const absl::Status status = Given(typed, environment, file).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  }

  const TestFolder folder_;
  const std::string path_ = folder_.Path("settings.toml");

 private:
  CLI::App app_{"", "tandem"};
  std::string text_;
  std::vector<std::string> list_;
};

TEST_F(Settings, ComeNextToTheNameOfTheCommand) {
  const Words environment = {"HOME=/",
                             "TANDEM_OPT_DRAFT_TOKENS=4",
                             "TANDEM_OPT_JSON=true",
                             "TANDEM_OPT_STOP=a=b",
                             "TANDEM_OPT_RUNS=3",
                             "TANDEM_OPT_TARGET="};
  EXPECT_THAT(*Given({"--log-level", "off", "serve", "--", "x"}, environment),
              ElementsAre("--log-level", "off", "serve", "--draft-tokens", "4", "--json", "--stop",
                          "a=b", "--", "x"));
  EXPECT_THAT(*Given({"bench", "speculation"}, environment),
              ElementsAre("bench", "speculation", "--draft-tokens", "4", "--json", "--runs", "3"));
  EXPECT_THAT(*Given({"serve"}, {"TANDEM_OPT_TARGET=true"}),
              ElementsAre("serve", "--target", "true"));
  EXPECT_THAT(*Given({"fetch", "name"}, environment), ElementsAre("fetch", "name"));
}

TEST_F(Settings, AreOverriddenByTheCommandLine) {
  const std::string file = "draft-tokens = 1\ntarget = 'a'\nstop = ['x', 'y']\njson = true";
  const Words typed = {"serve", "--config", path_};
  EXPECT_THAT(*Given(typed, {}, file),
              ElementsAre("serve", "--draft-tokens", "1", "--target", "a", "--stop", "x", "--stop",
                          "y", "--json", "--config", path_));
  EXPECT_THAT(*Given(typed, {"TANDEM_OPT_DRAFT_MAX=2", "TANDEM_OPT_JSON=false"}, file),
              ElementsAre("serve", "--target", "a", "--stop", "x", "--stop", "y", "--draft-tokens",
                          "2", "--config", path_));
  EXPECT_THAT(
      *Given({"serve", "--config=" + path_, "-k3", "--stop", "z", "--model", "b"},
             {"TANDEM_OPT_DRAFT_TOKENS=2", "TANDEM_OPT_STOP=v"}, file),
      ElementsAre("serve", "--json", "--config=" + path_, "-k3", "--stop", "z", "--target", "b"));
  // The environment may name the file.
  EXPECT_THAT(*Given({"serve"}, {"TANDEM_OPT_CONFIG=" + path_}, "json = true"),
              ElementsAre("serve", "--json"));
  EXPECT_THAT(*Given(typed, {"TANDEM_OPT_CONFIG=/nonexistent"}, "json = true"),
              ElementsAre("serve", "--json", "--config", path_));
}

TEST_F(Settings, AreOverriddenByOptionsThatExcludeThem) {
  const std::string file = "api-key-file = 'f'";
  const Words typed = {"serve", "--config", path_};
  EXPECT_THAT(*Given(typed, {"TANDEM_OPT_API_KEY=k"}, file),
              ElementsAre("serve", "--api-key", "k", "--config", path_));
  EXPECT_THAT(*Given({"serve", "--config", path_, "--api-key", "c"}, {}, file),
              ElementsAre("serve", "--config", path_, "--api-key", "c"));
  // The command reads this variable if no option has the key.
  EXPECT_THAT(*Given(typed, {"TANDEM_API_KEY=k"}, file), ElementsAreArray(typed));
  EXPECT_THAT(*Given(typed, {"TANDEM_API_KEY="}, file),
              ElementsAre("serve", "--api-key-file", "f", "--config", path_));
}

TEST_F(Settings, InNarrowerTablesCount) {
  const std::string file =
      "draft-tokens = 1\ntarget = 'a'\n[bench.speculation]\ndraft-tokens = 3\n"
      "[bench]\nruns = 2\ntarget = 'b'\n[serve]\njson = true\n";
  EXPECT_THAT(*Given({"bench", "speculation", "--config", path_}, {}, file),
              ElementsAre("bench", "speculation", "--runs", "2", "--target", "b", "--draft-tokens",
                          "3", "--config", path_));
  EXPECT_THAT(
      *Given({"bench", "kernels", "--config", path_}, {}, file),
      ElementsAre("bench", "kernels", "--draft-tokens", "1", "--target", "b", "--config", path_));
  EXPECT_THAT(
      *Given({"serve", "--config", path_}, {}, file),
      ElementsAre("serve", "--draft-tokens", "1", "--target", "a", "--json", "--config", path_));
}

TEST_F(Settings, ErrorsNameTheVariable) {
  EXPECT_THAT(ErrorOf({"fetch"}, {"TANDEM_OPT_DRAFT_TOKEN=4"}),
              StartsWith("TANDEM_OPT_DRAFT_TOKEN: no such option of the commands of `tandem`, did "
                         "you mean --draft-tokens?"));
  EXPECT_THAT(ErrorOf({"fetch"}, {"TANDEM_OPT_=4"}), StartsWith("TANDEM_OPT_: no such option"));
  EXPECT_EQ(ErrorOf({"serve"}, {"TANDEM_OPT_JSON=1"}),
            "TANDEM_OPT_JSON: must be true or false, got \"1\"");
}

TEST_F(Settings, ErrorsNameTheFile) {
  const auto error = [&](const std::string& file) {
    return ErrorOf({"serve", "--config", path_}, {}, file);
  };
  EXPECT_THAT(error("draft-token = 1"),
              StartsWith(path_ + ": draft-token: no such option of the commands of `tandem`, did "
                                 "you mean --draft-tokens?"));
  EXPECT_THAT(error("[serve]\nruns = 1"),
              StartsWith(path_ + ": serve: runs: no such option of `tandem serve`"));
  EXPECT_THAT(
      error("[bench]\nstop = 'a'"),
      StartsWith(path_ + ": bench: stop: no such option of the commands of `tandem bench`"));
  EXPECT_THAT(error("[serv]"), StartsWith(path_ + ": serv: no such command of `tandem`, did you "
                                                  "mean serve?"));
  EXPECT_THAT(error("[bench.serve]"),
              StartsWith(path_ + ": bench: serve: no such command of `tandem bench`"));
  EXPECT_THAT(error("config = 'f'"), StartsWith(path_ + ": config: no such option"));
  EXPECT_THAT(error("json = 1"), StartsWith(path_ + ": json: must be true or false, got 1"));
  EXPECT_THAT(error("json = "), StartsWith(path_ + ":1: "));
  EXPECT_THAT(std::string(Given({"serve", "--config", "/nonexistent"}).status().message()),
              HasSubstr("/nonexistent"));
}

TEST_F(Settings, AreNotReadForAHelp) {
  const Words environment = {"TANDEM_OPT_NONE=1"};
  for (const Words& typed : {Words{"serve", "--help"}, {"serve", "-h"}, {"--version"}, {}}) {
    EXPECT_THAT(*Given(typed, environment), ElementsAreArray(typed));
  }
}

}  // namespace
}  // namespace tandem
