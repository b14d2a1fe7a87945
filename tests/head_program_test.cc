// The program with a draft head, as its users run it.
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine_testing.h"
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
  Words With(Words words, const Words& more = {}) const {
    return Joined(Joined(std::move(words), {"--target", Target(), "--draft", head_.path(),
                                            "--threads", "1", "--device", "cpu"}),
                  more);
  }

  HeadFolder head_;
};

TEST_F(HeadProgram, InspectSaysWhatItReads) {
  const ProgramRun run = RunProgram({"inspect", Target(), "--draft", head_.path()});
  EXPECT_EQ(run.exit_status, kExitDone) << run.err;
  EXPECT_THAT(run.out, HasSubstr("a draft head"));
  EXPECT_THAT(run.out, HasSubstr("the last one after the final norm"));
  const JsonValue json = RunJson({"inspect", Target(), "--draft", head_.path()});
  EXPECT_EQ(json["draft"]["kind"], "eagle3");
  EXPECT_EQ(json["draft"]["target_layers"], JsonValue({2}));
}

TEST_F(HeadProgram, ModelNamesTheDraftWhateverItsForm) {
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

TEST_F(HeadProgram, ProofComparesWhatItReadsWithTheText) {
  const Words words = With({"verify-lossless", "-k", "2", "--runs", "2", "--compute", "f32"});
  // So few runs see not every fault of a law, and the verdict is "incomplete".
  const JsonValue json = JsonValue::parse(RunProgram(Joined(words, {"--json"})).out);
  EXPECT_NE(json["verdict"], "broken") << json["reason"];
  for (const JsonValue& check : json["exact"]) EXPECT_EQ(check["different"], 0) << check;
  bool has_states = false;
  for (const JsonValue& fault : json["faults"]) {
    if (fault["fault"] != "head-states-off-by-one") continue;
    has_states = true;
    EXPECT_EQ(fault["applies"], true);
    EXPECT_EQ(fault["caught"], true);
  }
  EXPECT_TRUE(has_states);
  const ProgramRun planted = RunProgram(Joined(words, {"--plant", "head-states-off-by-one"}));
  EXPECT_EQ(planted.exit_status, kExitFailed);
  EXPECT_THAT(planted.out, HasSubstr("verdict: broken"));
}

}  // namespace
}  // namespace tandem
