#include "tools/option_table.h"

#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tandem/json_value.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class OptionTable : public testing::Test {
 protected:
  OptionTable() {
    app_.set_version_flag("--version", "1");
    app_.fallthrough();
    app_.add_option("--log-level", text_);
    serve_ = app_.add_subcommand("serve");
    for (const char* name : {"-m,--target", "-k,--draft-tokens", "--temperature", "--config"}) {
      serve_->add_option(name, text_);
    }
    serve_->add_option("--stop", list_);
    serve_->add_flag("--json");
    serve_->add_option("--key", text_);
    serve_->add_option("--key-file", text_)->excludes("--key");
  }

  absl::StatusOr<std::vector<std::string>> WordsOf(const std::string& json) const {
    ASSIGN_OR_RETURN(const std::vector<OptionWords> entries, EntriesOf(json));
    return WordsIn(entries);
  }
  absl::StatusOr<std::vector<OptionWords>> EntriesOf(const std::string& json) const {
    return WordsOfTable(serve_, "f.toml: serve", JsonValue::parse(json));
  }
  std::string ErrorOf(const std::string& json) const {
    const absl::Status status = WordsOf(json).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << json;
    return std::string(status.message());
  }

 private:
  CLI::App app_{"", "tandem"};
  CLI::App* serve_ = nullptr;
  std::string text_;
  std::vector<std::string> list_;
};

TEST_F(OptionTable, BecomesWordsOfTheCommandLine) {
  EXPECT_THAT(*WordsOf(R"({"draft-tokens": 4, "target": "-a b", "log_level": "off"})"),
              ElementsAre("--draft-tokens", "4", "--target", "-a b", "--log-level", "off"));
  EXPECT_THAT(*WordsOf(R"({"draft_tokens": "auto", "temperature": 0.7})"),
              ElementsAre("--draft-tokens", "auto", "--temperature", "0.7"));
  EXPECT_THAT(*WordsOf(R"({"json": true, "stop": ["a", "", 3]})"),
              ElementsAre("--json", "--stop", "a", "--stop", "", "--stop", "3"));
  EXPECT_THAT(*WordsOf(R"({"json": false, "stop": []})"), IsEmpty());
  EXPECT_THAT(*WordsOf(R"({"stop": "a"})"), ElementsAre("--stop", "a"));
}

TEST_F(OptionTable, TakesNamesOfOtherEngines) {
  EXPECT_THAT(*WordsOf(R"({"draft_max": 3, "model": "a"})"),
              ElementsAre("--draft-tokens", "3", "--target", "a"));
  EXPECT_THAT(
      ErrorOf(R"({"n_gpu_layers": 99})"),
      StartsWith("f.toml: serve: n-gpu-layers: no such option of `tandem serve`: --device"));
}

TEST_F(OptionTable, ErrorsNameTheSourceAndTheKey) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"draft-token": 4})",
       "draft-token: no such option of `tandem serve`, did you mean --draft-tokens?"},
      {R"({"m": "a"})", "m: no such option of `tandem serve`; see"},
      {R"({"help": true})", "help: no such option"},
      {R"({"version": true})", "version: no such option"},
      {R"({"config": "a"})", "config: no such option"},
      {R"({"": 1})", ": no such option"},
      {R"({"draft-tokens": true})", "draft-tokens: must be a string or a number, got true"},
      {R"({"draft-tokens": [4]})", "draft-tokens: must be a string or a number, got [4]"},
      {R"({"draft-tokens": {"a": 1}})", "draft-tokens: must be a string or a number, got {"},
      {R"({"stop": [["a"]]})",
       "stop: must be a string, a number, or an array of these, got [[\"a\"]]"},
      {R"({"json": 1})", "json: must be true or false, got 1"},
      {R"({"draft-tokens": 4, "draft_tokens": 5})", "draft-tokens: is given twice"},
      {R"({"draft-tokens": 4, "draft-max": 5})", "draft-tokens: is given twice"}};
  for (const auto& [json, message] : cases) {
    EXPECT_THAT(ErrorOf(json), StartsWith("f.toml: serve: " + message));
  }
}

TEST_F(OptionTable, IsOverriddenByOptionsAndThoseThatExcludeThem) {
  const auto left = [&](const std::string& lower, const std::string& higher) {
    return WordsIn(NotOverridden(*EntriesOf(lower), *EntriesOf(higher)));
  };
  const std::string all = R"({"stop": ["a", "b"], "json": true, "key_file": "f", "target": "m"})";
  EXPECT_THAT(left(all, R"({"stop": "c"})"),
              ElementsAre("--json", "--key-file", "f", "--target", "m"));
  EXPECT_THAT(left(all, R"({"stop": [], "json": false, "target": "n"})"),
              ElementsAre("--key-file", "f"));
  EXPECT_THAT(left(all, R"({"json": true, "stop": "c", "key": "k"})"),
              ElementsAre("--target", "m"));
  EXPECT_THAT(left(R"({"key": "k"})", R"({"key-file": "f"})"), IsEmpty());
  const std::vector<OptionWords> others = {{.words = {"a"}}};
  EXPECT_THAT(WordsIn(NotOverridden(others, others)), ElementsAre("a"));
}

TEST_F(OptionTable, NamesItselfInErrorsOfTheParser) {
  const auto entries = *EntriesOf(R"({"draft-max": 4})");
  const auto named = [&](const char* error) {
    return std::string(InSource(entries, absl::InvalidArgumentError(error)).message());
  };
  EXPECT_EQ(named("--draft-tokens: must be"), "f.toml: serve: draft-tokens: must be");
  EXPECT_EQ(named("--draft-tokens excludes"), "f.toml: serve: draft-tokens excludes");
  EXPECT_EQ(named("--draft: must be"), "--draft: must be");
  EXPECT_EQ(named("no --draft-tokens"), "no --draft-tokens");
  const absl::Status status =
      InSource("f.toml", absl::InvalidArgumentError("--draft-tokens: must be auto, got x"));
  EXPECT_EQ(status.message(), "f.toml: draft-tokens: must be auto, got x");
}

}  // namespace
}  // namespace tandem
