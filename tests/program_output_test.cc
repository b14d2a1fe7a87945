// Failures around the program's output: full disks, closed pipes, missing streams, and batches with
// bad prompts.
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "engine/engine_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tandem/json_value.h"
#include "tests/golden_file.h"
#include "tests/run_program.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using Json = SortedJson;
using Words = std::vector<std::string>;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr int kFailed = 1;
constexpr int kClosedPipe = 141;
// Runs the program with a pipe as standard output whose reader has already exited.
constexpr char kIntoClosedPipe[] = R"(exec 3> >(exit 0); wait $!; "$0" "$@" >&3)";

class ProgramOutput : public testing::Test {
 protected:
  ProgramOutput() : model_(GoldenModelPath("llama-gqa")) {}

  // Returns the words of a generation of 4 tokens with a tiny model.
  Words Generate(const Words& more) const {
    Words words = {"generate",
                   "--target",
                   GoldenModelPath("llama-gqa"),
                   "--threads",
                   "1",
                   "--compute",
                   "f32",
                   "--temperature",
                   "0",
                   "--max-tokens",
                   "4"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  // Writes these lines to a file and returns its path.
  std::string Prompts(const Words& lines) const {
    model_.Write("prompts.jsonl", absl::StrJoin(lines, "\n"));
    return model_.Path("prompts.jsonl");
  }
  // Returns one command of each kind, and one for each way in which `generate` prints.
  std::vector<Words> Commands() const {
    const std::string prompts = Prompts({R"({"prompt": "a"})", R"({"prompt": "b"})"});
    return {{"--help"},
            {"--version"},
            {"make-random", "--print-config"},
            {"tokenize", "--tokenizer", GoldenModelPath("llama-gqa"), "--text", "a"},
            {"inspect", GoldenModelPath("llama-gqa"), "--threads", "1"},
            Generate({"--prompt", "a"}),
            Generate({"--prompt", "a", "--json"}),
            Generate({"--prompts", prompts}),
            Generate({"--prompts", prompts, "--json"}),
            Generate({"--prompts", prompts, "--json", "--compare"}),
            {"bench", "perplexity", "--target", GoldenModelPath("llama-gqa"), "--file", prompts}};
  }

  const ModelCopy model_;  // a folder to write to
};

// ---- Lost output ----

TEST_F(ProgramOutput, AFullDiskIsAnError) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  for (const Words& words : Commands()) {
    SCOPED_TRACE(absl::StrJoin(words, " "));
    const ProgramRun run = RunScript(R"("$0" "$@" >/dev/full)", words);
    EXPECT_EQ(run.exit_status, kFailed);
    EXPECT_THAT(run.err, HasSubstr("tandem: error: standard output: "));
    EXPECT_THAT(run.err, HasSubstr("No space left on device"));
  }
}

TEST_F(ProgramOutput, AClosedPipeEndsQuietly) {
  for (const Words& words : Commands()) {
    SCOPED_TRACE(absl::StrJoin(words, " "));
    // Also under a parent that ignores SIGPIPE.
    for (const char* before : {"", "trap '' PIPE; "}) {
      const ProgramRun run = RunScript(absl::StrCat(before, kIntoClosedPipe), words);
      EXPECT_EQ(run.exit_status, kClosedPipe);
      EXPECT_THAT(run.err, Not(HasSubstr("error")));
    }
  }
  // An error of the command itself is still reported.
  const ProgramRun failed = RunScript(kIntoClosedPipe, {"inspect", "/nonexistent"});
  EXPECT_EQ(failed.exit_status, kFailed);
  EXPECT_THAT(failed.err, HasSubstr("tandem: error: "));
}

TEST_F(ProgramOutput, ReachesAReaderThatStopsAfterOneLine) {
  const ProgramRun run = RunScript(
      R"("$0" "$@" 2>&1 | head -n 1)",
      Generate({"--prompts", Prompts(Words(200, R"({"prompt": "a"})")), "--log-level", "off"}));
  EXPECT_EQ(run.out, "--- prompt 1\n");
}

TEST_F(ProgramOutput, AFileSizeLimitIsAnError) {
  const Words lines(30, R"({"prompt": "a"})");
  const std::string out = model_.Path("out");
  const ProgramRun run = RunScript(absl::StrCat("ulimit -f 8; \"$0\" \"$@\" >", out),
                                   Generate({"--prompts", Prompts(lines), "--json"}));
  EXPECT_EQ(run.exit_status, kFailed);
  EXPECT_THAT(run.err, HasSubstr("tandem: error: standard output: "));
  EXPECT_THAT(run.err, HasSubstr("File too large"));
}

// A file that is opened later must not get the closed stream's descriptor: the output would go into
// that file.
TEST_F(ProgramOutput, AClosedStandardOutputIsAnErrorAndNotReusedByAFile) {
  const std::string folder = model_.Path("random");
  const ProgramRun run =
      RunScript(R"("$0" "$@" >&- 2>&-)", {"make-random", "--shape", "tiny", "--out", folder});
  EXPECT_EQ(run.exit_status, kFailed);
  EXPECT_EQ(RunProgram({"inspect", folder, "--threads", "1"}).exit_status, 0);
  const ProgramRun closed = RunScript(R"("$0" "$@" >&-)", Generate({"--prompt", "a"}));
  EXPECT_EQ(closed.exit_status, kFailed);
  EXPECT_THAT(closed.err, HasSubstr("tandem: error: standard output: "));
}

TEST_F(ProgramOutput, ABrokenStandardErrorChangesNothing) {
  const Words words = Generate({"--prompt", "Once upon a time"});
  const ProgramRun usual = RunProgram(words);
  ASSERT_EQ(usual.exit_status, 0) << usual.err;
  for (const char* script : {R"("$0" "$@" 2>&-)", R"("$0" "$@" 2>/dev/full)",
                             R"(exec 3> >(exit 0); wait $!; "$0" "$@" 2>&3)"}) {
    SCOPED_TRACE(script);
    const ProgramRun run = RunScript(script, words);
    EXPECT_EQ(run.exit_status, 0);
    EXPECT_EQ(run.out, usual.out);
  }
}

// The disk is full after this many blocks of 1024 bytes, in whichever file that happens.
TEST_F(ProgramOutput, AFullDiskLeavesNoModelAndNamesTheFile) {
  const std::string out = model_.Path("out");
  for (const Words& words : {Words{"quantize", GoldenModelPath("llama-gqa"), "--out", out},
                             Words{"make-random", "--shape", "tiny", "--out", out}}) {
    for (const char* blocks : {"1", "60"}) {
      SCOPED_TRACE(absl::StrCat(words[0], ", ", blocks));
      const ProgramRun run =
          RunScript(absl::StrCat("ulimit -f ", blocks, R"(; "$0" "$@" 2>&1 | cat; )",
                                 "exit ${PIPESTATUS[0]}"),
                    words);
      EXPECT_EQ(run.exit_status, kFailed);
      EXPECT_THAT(run.out, AllOf(HasSubstr(absl::StrCat("tandem: error: ", out, "/")),
                                 HasSubstr("File too large")));
      EXPECT_FALSE(fs::exists(out));
    }
  }
}

// ---- Batches with bad prompts ----

// Returns a prompt that is not JSON, one that is refused, and good ones before, between and after
// them.
Words MixedLines() {
  return {R"({"prompt": "Once"})", "",  R"({"prompt": 5})",     R"({"prompt_ids": [999999]})",
          R"({"prompt": "a b"})",  "{", R"({"prompt": "Once"})"};
}

TEST_F(ProgramOutput, ABadPromptIsAnErrorInItsPlaceNextToAnswers) {
  const std::string prompts = Prompts(MixedLines());
  for (const Words& extra : {Words{}, Words{"--compare"}, Words{"--batch", "1"}}) {
    SCOPED_TRACE(absl::StrJoin(extra, " "));
    Words words = Generate({"--prompts", prompts, "--json"});
    words.insert(words.end(), extra.begin(), extra.end());
    const ProgramRun run = RunProgram(words);
    EXPECT_EQ(run.exit_status, kFailed);
    const Json all = Json::parse(run.out, nullptr, /*allow_exceptions=*/false);
    ASSERT_EQ(all.size(), 6u) << run.out;
    for (const int good : {0, 3, 5}) {
      EXPECT_EQ(all[good]["completion_tokens"], 4) << good;
      EXPECT_EQ(all[good].contains("speedup"), !extra.empty() && extra[0] == "--compare");
    }
    EXPECT_EQ(all[0]["token_ids"], all[5]["token_ids"]);
    for (const auto& [place, line] : {std::pair(1, 3), std::pair(2, 4), std::pair(4, 6)}) {
      const std::string where = absl::StrCat(prompts, ":", line, ": ");
      EXPECT_EQ(all[place]["line"], line);
      EXPECT_THAT(all[place]["error"].get<std::string>(), StartsWith(where));
      EXPECT_THAT(run.err, HasSubstr(absl::StrCat("tandem: ", where)));
    }
    EXPECT_THAT(run.err, HasSubstr(absl::StrCat("tandem: error: ", prompts,
                                                ": 3 of 6 prompts failed; the first: ", prompts,
                                                ":3: prompt: found 5")));
  }
}

TEST_F(ProgramOutput, TextOutputKeepsTheNumbersOfPromptsNextToBadOnes) {
  const std::string text = RunProgram(Generate({"--prompt", "Once"})).out;
  const ProgramRun run = RunProgram(Generate({"--prompts", Prompts(MixedLines())}));
  EXPECT_EQ(run.exit_status, kFailed);
  EXPECT_THAT(run.out, AllOf(StartsWith(absl::StrCat("--- prompt 1\n", text, "--- prompt 4\n")),
                             EndsWith(absl::StrCat("--- prompt 6\n", text))));
}

TEST_F(ProgramOutput, MorePromptsThanTheQueueHoldsAreAnsweredInOrder) {
  Words lines;
  for (int i = 0; i < 300; ++i) {
    const Json good = {{"prompt_ids", std::vector<int>(1 + i % 30, 5)}};
    lines.push_back(i % 7 == 3 ? "?" : good.dump());
  }
  const ProgramRun run = RunProgram(Generate({"--prompts", Prompts(lines), "--json"}));
  EXPECT_EQ(run.exit_status, kFailed);
  const Json all = Json::parse(run.out, nullptr, /*allow_exceptions=*/false);
  ASSERT_EQ(all.size(), 300u);
  for (int i = 0; i < 300; ++i) {
    if (i % 7 == 3) {
      EXPECT_EQ(all[i]["line"], i + 1);
    } else {
      EXPECT_EQ(all[i]["prompt_tokens"], 1 + i % 30);
    }
  }
}

TEST_F(ProgramOutput, APromptIsAnsweredBeforeTheNextIsWritten) {
  // Reads each answer before it writes the next prompt, and closes the input after the last.
  const char ask[] = R"(
    coproc "$0" "$@"
    exec {to}>&${COPROC[1]} {from}<&${COPROC[0]} {COPROC[1]}>&-
    for i in 1 2; do
      printf '{"prompt_ids": [5]}\n\n' >&$to
      until read -r -t 60 -u $from line || exit 9; [[ $line == "--- prompt $i" ]]; do :; done
    done
    exec {to}>&-
    wait $COPROC_PID)";
  EXPECT_EQ(RunScript(ask, Generate({"--prompts", "-"})).exit_status, 0);
}

// More prompts than an engine accepts at once by default.
TEST_F(ProgramOutput, ComparisonsCoverAnyNumberOfPrompts) {
  const std::string prompts = Prompts(Words(1030, R"({"prompt_ids": [5]})"));
  const Words words = {"--prompts", prompts, "--json", "--max-tokens", "1", "--batch", "1000"};
  for (const Words& extra : {Words{}, Words{"--compare"}}) {
    Words all = Generate(words);
    all.insert(all.end(), extra.begin(), extra.end());
    const ProgramRun run = RunProgram(all);
    EXPECT_EQ(run.exit_status, 0) << run.err;
    EXPECT_EQ(Json::parse(run.out, nullptr, /*allow_exceptions=*/false).size(), 1030u);
  }
}

// The reader of a pipe gets the first answer before the writer closes the input. The time limit
// ends a program that answers only after that.
TEST_F(ProgramOutput, AnswersComeBeforeTheInputIsClosed) {
  const ProgramRun run = RunScript(R"(
      coproc program { "$0" "$@"; }
      out=${program[0]} in=${program[1]} pid=$program_PID
      for i in {1..200}; do echo '{"prompt": "a"}'; done >&$in
      read -t 100 -r line <&$out; echo "first: $line"
      eval "exec $in>&-"
      grep -c -e '--- prompt' <&$out; wait $pid; echo "status $?")",
                                   Generate({"--prompts", "-"}));
  EXPECT_EQ(run.out, "first: --- prompt 1\n199\nstatus 0\n");
}

}  // namespace
}  // namespace tandem
