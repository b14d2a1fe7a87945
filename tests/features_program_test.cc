// `tandem features` as its users run it. The values of states are tested in tests/distill_test.py
// and tests/target_states_test.cc.
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "engine/engine_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/folder_testing.h"
#include "tests/run_program.h"

namespace tandem {
namespace {

using Words = std::vector<std::string>;

class FeaturesProgram : public testing::Test {
 protected:
  ProgramRun Run(const std::string& layers, const std::string& prompts, const Words& more = {}) {
    return RunProgram(Joined({"features", "-m", ShippedModelPath("storyteller-1m"), "--layers",
                              layers, "--prompts", "-", "--out", out_, "--threads", "1"},
                             more),
                      prompts);
  }

  const TestFolder folder_;
  const std::string out_ = folder_.Path("features.npz");
};

TEST_F(FeaturesProgram, WritesAStateForEachToken) {
  const ProgramRun run =
      Run("0,last", "{\"prompt_ids\": [5, 6, 7]}\n{\"prompt\": \"Once upon a time\"}\n");
  EXPECT_EQ(run.exit_status, kExitDone) << run.err;
  const auto half = std::filesystem::file_size(out_);
  ASSERT_EQ(Run("0,last", "{\"prompt_ids\": [5, 6, 7]}\n", {"--type", "f32"}).exit_status,
            kExitDone);
  // Three tokens with two layers of 128 floats. The files above have seven tokens of half the
  // bytes.
  EXPECT_GT(std::filesystem::file_size(out_), 3 * 2 * 128 * 4);
  EXPECT_GT(half, (3 + 4) * 2 * 128 * 2);
}

TEST_F(FeaturesProgram, NamesTheFault) {
  const auto expect = [&](const ProgramRun& run, const std::string& error) {
    EXPECT_EQ(run.exit_status, kExitFailed);
    EXPECT_EQ(run.err, absl::StrCat("tandem: error: ", error, "\n"));
    EXPECT_FALSE(std::filesystem::exists(out_));
  };
  const std::string prompt = "{\"prompt_ids\": [5]}\n";
  expect(Run("2", prompt), "--layers: must be layers from 0 to 1, or last, got \"2\"");
  expect(Run("1,x", prompt), "--layers: must be layers from 0 to 1, or last, got \"x\"");
  expect(Run("1", "{\"prompt_ids\": [5]}\n{\"prompt_ids\": [4096]}\n"),
         "-: prompt 2: prompt_ids: token 4096 is not in the vocabulary of 4096");
  std::string ids = "[5";
  for (int i = 0; i < 1024; ++i) ids += ",5";
  expect(Run("1", absl::StrCat("{\"prompt_ids\": ", ids, "]}\n")),
         "-: prompt 1: has 1025 tokens, allowed: at most 1024");
}

}  // namespace
}  // namespace tandem
