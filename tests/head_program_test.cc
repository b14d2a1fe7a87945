// The program with a draft head, as its users run it.
#include <string>
#include <utility>
#include <vector>

#include "engine/engine_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/head_folder.h"
#include "tests/run_program.h"

namespace tandem {
namespace {

using testing::HasSubstr;
using Words = std::vector<std::string>;

class HeadProgram : public testing::Test {
 protected:
  HeadProgram()
      : head_(Target(), TextsOf(Target(), {"Once upon a time"}, 64), {.is_one_layer = true}) {}

  static std::string Target() { return ShippedModelPath("storyteller-1m"); }
  Words With(Words words) const {
    return Joined(std::move(words), {"--target", Target(), "--draft", head_.path(), "--threads",
                                     "1", "--device", "cpu"});
  }

  HeadFolder head_;
};

TEST_F(HeadProgram, InspectShowsTheStatesThatAHeadReads) {
  const ProgramRun run = RunProgram({"inspect", Target(), "--draft", head_.path()});
  EXPECT_EQ(run.exit_status, kExitDone) << run.err;
  EXPECT_THAT(run.out, HasSubstr("a draft head"));
  EXPECT_THAT(run.out, HasSubstr("the last one after the final norm"));
}

TEST_F(HeadProgram, ModelSelectsTheDraftOfAnyForm) {
  const Words words = With({"generate", "--prompt", "Once upon a time", "--max-tokens", "40",
                            "--temperature", "0", "-k", "2"});
  const JsonValue plain = RunJson(Joined(words, {"--drafter", "none"}));
  for (const auto& [asked, told] :
       std::vector<std::pair<std::string, std::string>>{{"model", "eagle3"},
                                                        {"eagle3", "eagle3"},
                                                        {"model+ngram", "eagle3+ngram"},
                                                        {"eagle3+ngram", "eagle3+ngram"}}) {
    const JsonValue json = RunJson(Joined(words, {"--drafter", asked}));
    EXPECT_EQ(json["speculation"]["drafter"], told);
    EXPECT_GT(json["speculation"]["accepted"], 0) << asked;
    EXPECT_EQ(json["token_ids"], plain["token_ids"]) << asked;
  }
}

// The other faults of heads are planted in tests/lossless_proof_test.cc.
TEST_F(HeadProgram, ProofChecksTheStatesThatAHeadReads) {
  const Words words = With({"verify-lossless", "-k", "2", "--runs", "2", "--compute", "f32"});
  const ProgramRun planted = RunProgram(Joined(words, {"--plant", "head-states-off-by-one"}));
  EXPECT_EQ(planted.exit_status, kExitFailed);
  EXPECT_THAT(planted.out, HasSubstr("verdict: broken"));
}

}  // namespace
}  // namespace tandem
