// `tandem prove` against a server of our own.
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/server_testing.h"
#include "tandem/json_value.h"
#include "tests/folder_testing.h"
#include "tests/run_program.h"

namespace tandem {
namespace {

using Json = SortedJson;
using Words = std::vector<std::string>;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kExitNoVerdict = 2;
constexpr int kExitIncomplete = 3;

class ProveProgram : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    engine_ = MakeTestEngine().release();
    server_ = StartServer(engine_, TestServerOptions()).release();
  }
  static void TearDownTestSuite() {
    delete server_;
    delete engine_;
  }
  static std::string Url() { return absl::StrCat("http://127.0.0.1:", server_->port()); }
  static ProgramRun Prove(const Words& words) {
    return RunProgram(Joined({"prove", "--server", Url(), "--runs", "8"}, words));
  }

  static Engine* engine_;
  static HttpServer* server_;
};
Engine* ProveProgram::engine_ = nullptr;
HttpServer* ProveProgram::server_ = nullptr;

Json OutcomesOf(const Json& report) {
  Json outcomes;
  for (const Json& check : report["checks"]) {
    outcomes[check["name"].get<std::string>()] = check["outcome"];
  }
  return outcomes;
}

TEST_F(ProveProgram, FindsNoDifferenceInOurOwnServer) {
  const TestFolder folder;
  const std::string json_file = folder.path() + "/report.json";
  const std::string markdown_file = folder.path() + "/report.md";
  const ProgramRun run = Prove({"--json", "--json-file", json_file, "--markdown", markdown_file});
  EXPECT_EQ(run.exit_status, kExitDone) << run.out << run.err;
  const Json report = Json::parse(run.out);
  EXPECT_EQ(report["verdict"], "no difference") << report;
  EXPECT_GT(report["proposed"], report["accepted"]);
  const Json outcomes = OutcomesOf(report);
  for (const char* name :
       {"greedy: alone", "greedy: concurrent", "greedy: other order", "greedy: shorter",
        "surface: stop", "surface: n", "surface: max_tokens", "surface: min_tokens",
        "surface: stream", "scored tokens", "log-probabilities"}) {
    EXPECT_EQ(outcomes[name], "equal") << name;
  }
  // Rows do not depend on the pass, so not even the last bit of a margin changes.
  EXPECT_THAT(report["checks"][1]["text"].get<std::string>(), HasSubstr("at most 0 nats"));
  std::ifstream json(json_file);
  EXPECT_EQ(Json::parse(json), report);
  std::ifstream file(markdown_file);
  const std::string markdown{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(markdown,
              AllOf(HasSubstr("**no difference: "), HasSubstr("| greedy: alone | equal |"),
                    HasSubstr("tandem prove --server")));
}

TEST_F(ProveProgram, IsIncompleteIfNothingWasDrafted) {
  const ProgramRun run = Prove(
      {"--speculative-body", R"({"speculation": {"draft_tokens": 0}})", "--checks", "greedy"});
  EXPECT_EQ(run.exit_status, kExitIncomplete);
  EXPECT_THAT(run.out, HasSubstr("verdict: incomplete: the speculative server drafted nothing"));
  EXPECT_THAT(run.err, HasSubstr("tandem: error: prove: incomplete: "));
}

TEST_F(ProveProgram, TellsWhatTheServerRefusesAndStopsAtItsRequests) {
  const ProgramRun run = Prove({"--requests", "40"});
  EXPECT_EQ(run.exit_status, kExitIncomplete) << run.out;
  EXPECT_THAT(run.out, HasSubstr("--requests: all were sent"));
  const ProgramRun wrong = Prove({"--plain-body", R"({"speculation": 4})"});
  EXPECT_EQ(wrong.exit_status, kExitNoVerdict);
  EXPECT_THAT(wrong.err, AllOf(HasSubstr(Url()), HasSubstr("400"), HasSubstr("speculation")));
}

// 1 would mean that speculation changes the output.
TEST_F(ProveProgram, HasAStatusOfItsOwnForFilesThatItCannotUse) {
  for (const Words& words : {Words{"--prompts", "/nowhere/prompts.jsonl"},
                             Words{"--json-file", "/nowhere/report.json", "--checks", "surface"}}) {
    const ProgramRun run = Prove(words);
    EXPECT_EQ(run.exit_status, kExitNoVerdict);
    EXPECT_THAT(run.err, HasSubstr("/nowhere"));
  }
}

TEST_F(ProveProgram, RefusesWrongCommandLines) {
  const std::string url = "http://127.0.0.1:1";
  for (const Words& words :
       {Words{}, Words{"--plain", url}, Words{"--server", url, "--plain", url},
        Words{"--server", "127.0.0.1:1"}, Words{"--server", url, "--plain-body", "{"},
        Words{"--server", url, "--checks", "taste"}, Words{"--server", url, "--engine", "x"},
        Words{"--server", url, "--accept", "all"}, Words{"--server", url}}) {
    ExpectRefused(RunProgram(Joined({"prove"}, words)), {kExitWrongLine});
  }
  EXPECT_THAT(RunProgram({"prove", "--server", url}).err, HasSubstr(url + "/props: "));
}

}  // namespace
}  // namespace tandem
