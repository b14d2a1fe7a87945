// Sends every parameter through the command line and HTTP; python/tests/parameters_test.py does so
// through Python.
#include <algorithm>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "base/mapped_file.h"
#include "base/source_path_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/api/api_request.h"
#include "tandem/json_value.h"
#include "tools/engine_options.h"
#include "tools/option_group.h"
#include "tools/request_options.h"

namespace tandem {
namespace {

using Json = SortedJson;

// A value other than the default for each parameter.
Json Values(const char* of) {
  const std::string file = SourcePath("tests/data/parameters.json");
  return Json::parse(ReadFile(file).value())[of];
}

template <typename Member>
Json JsonOf(const Member& value) {
  if constexpr (std::is_enum_v<Member>) {
    return std::string(NameOf(value));
  } else if constexpr (std::is_same_v<Member, std::optional<KvCacheType>>) {
    return value.has_value() ? JsonOf(*value) : Json("");
  } else {
    return value;
  }
}

// `value` as typed on the command line.
std::vector<std::string> WordsFor(const Parameter& parameter, const Json& value) {
  const absl::string_view names = parameter.option;
  const std::string name(names.substr(names.find("--")));
  if (value.is_boolean()) return {name};
  std::vector<std::string> words;
  for (const Json& one : value.is_array() ? value : Json{value}) {
    words.insert(words.end(), {name, one.is_string() ? one.get<std::string>() : one.dump()});
  }
  return words;
}

void Parse(CLI::App* app, std::vector<std::string> words) {
  std::reverse(words.begin(), words.end());
  try {
    app->parse(words);
  } catch (const CLI::ParseError& error) {
    ADD_FAILURE() << error.what();
  }
}

TEST(Parameters, ReachTheEngineFromTheCommandLine) {
  const Json values = Values("engine");
  EngineFlags flags;
  CLI::App app;
  flags.AddTo(&app, {kEngineGroup, kStoreGroup, kTransferGroup, kEventGroup, kLimitGroup});
  std::vector<std::string> words;
  VisitEngineOptions([&](const Parameter& parameter, auto member, const auto&...) {
    ASSERT_TRUE(values.contains(parameter.name)) << parameter.name;
    EXPECT_NE(JsonOf(EngineOptions().*member), values[parameter.name]) << parameter.name;
    if (*parameter.option == '\0') return;
    for (std::string& word : WordsFor(parameter, values[parameter.name])) words.push_back(word);
  });
  Parse(&app, words);
  VisitEngineOptions([&](const Parameter& parameter, auto member, const auto&...) {
    const Json want =
        *parameter.option == '\0' ? JsonOf(EngineOptions().*member) : values[parameter.name];
    EXPECT_EQ(JsonOf(flags.options.*member), want) << parameter.name;
  });
  flags.options.kv_store.clear();  // neither can be combined with ranks
  flags.options.kv_transfer.clear();
  flags.options.prefix_cache = true;
  flags.options.rendezvous_secret = values["rendezvous_secret"];  // no option has the text itself
  EXPECT_TRUE(flags.options.Validate().ok()) << flags.options.Validate();
}

TEST(Parameters, SamplingParametersReachTheEngineFromTheCommandLineAndHttp) {
  const Json values = Values("sampling");
  SamplingFlags flags;
  CLI::App app;
  flags.AddTo(&app);
  std::vector<std::string> words;
  VisitSamplingParams([&](const Parameter& parameter, auto, const Limits&) {
    for (std::string& word : WordsFor(parameter, values[parameter.name])) words.push_back(word);
  });
  Parse(&app, words);
  Json body = values;
  body["prompt"] = {1};
  body["max_tokens"] = 3;
  ServedModel model;
  model.context_length = 100;
  model.cache_tokens = 100;
  const absl::StatusOr<ApiRequest> request = ParseCompletionRequest(body.dump(), model);
  ASSERT_TRUE(request.ok()) << request.status();
  VisitSamplingParams([&](const Parameter& parameter, auto member, const Limits&) {
    EXPECT_NE(JsonOf(SamplingParams().*member), values[parameter.name]) << parameter.name;
    EXPECT_EQ(JsonOf(flags.params.*member), values[parameter.name]) << parameter.name;
    EXPECT_EQ(JsonOf(request->request.sampling.*member), values[parameter.name]) << parameter.name;
  });
}

TEST(Parameters, AreDocumented) {
  std::string documents;
  for (const char* name : {"command_line", "server/serving", "tensor_parallel"}) {
    documents += ReadFile(absl::StrCat(SourcePath("docs/"), name, ".md")).value();
  }
  const auto look = [&](const Parameter& parameter) {
    const absl::string_view names = parameter.option;
    if (names.empty()) return;
    const std::string name(names.substr(names.find("--")));
    EXPECT_TRUE(std::regex_search(documents, std::regex("[` ]" + name + "[`\\s]"))) << name;
  };
  VisitEngineOptions([&](const Parameter& parameter, auto, const auto&...) { look(parameter); });
  VisitSamplingParams([&](const Parameter& parameter, auto, const Limits&) { look(parameter); });
}

TEST(Parameters, ErrorsHaveTheSameWordsEverywhere) {
  EngineOptions options{.target = "m"};
  options.threads = 5000;
  EXPECT_EQ(options.Validate().message(), "threads: must be from 0 to 4096, got 5000");
  options.threads = 0;
  options.draft_tokens = 33;
  EXPECT_EQ(options.Validate().message(), "draft_tokens: must be auto or from 0 to 32, got 33");
  int value = 8;
  const auto error = [&](const std::string& text, const Limits& limits) {
    return std::string(SetFromText("--x", text, limits, &value).message());
  };
  EXPECT_EQ(error("0", {.low = 1}), "--x: must be at least 1, got 0");
  EXPECT_EQ(CheckWithin("x", INFINITY, {.low = 0}).message(),
            "x: must be finite and at least 0, got inf");
  EXPECT_EQ(error("many", {.low = 1, .high = 9}), "--x: must be from 1 to 9, got many");
  EXPECT_EQ(error("", kDraftTokenLimits), "--x: must be auto or from 0 to 32, got nothing");
  EXPECT_EQ(error("-1", kDraftTokenLimits), "--x: must be auto or from 0 to 32, got -1");
  EXPECT_EQ(error("3000000000", {.low = 1}), "--x: must be from 1 to 2147483647, got 3000000000");
  EXPECT_EQ(value, 8);
  EXPECT_EQ(error("auto", kDraftTokenLimits), "");
  EXPECT_EQ(value, kAutoDraftTokens);
  EXPECT_EQ(error("2k", {.low = 1, .is_size = true}), "");
  EXPECT_EQ(value, 2048);
  EXPECT_EQ(SizeText(16 << 20), "16M");
  EXPECT_EQ(SizeText(1025), "1025");
}

}  // namespace
}  // namespace tandem
