// The learned state of speculation is kept for the next engine of the same pair.
#include "engine/learned_speculation.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include "engine/engine_testing.h"
#include "gtest/gtest.h"
#include "tandem/engine.h"
#include "tests/folder_testing.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

double FirstSurvival(const SpeculationPolicy& policy) {
  double survival = 0.0;
  policy.unsalted().AcceptanceAt(0.0f).Survival({.source = DraftSource::kModel}, nullptr,
                                                absl::MakeSpan(&survival, 1));
  return survival;
}

TEST(LearnedSpeculation, SurvivesTheEngineAndADamagedFile) {
  const TestFolder folder;
  const GoldenPair pair("shallow");
  EngineOptions options = CpuOptionsFor(pair.target, pair.target);
  options.drafter = DrafterKind::kModel;
  options.draft_tokens = 4;  // auto would not draft: a draft as large as its target is not faster
  options.packed_weights = folder.path();
  const auto answer = [&] {
    return Generate(MakeEngine(options).get(), {.prompt_ids = pair.prompt_ids,
                                                .max_tokens = 64,
                                                .sampling = kGreedy,
                                                .ignore_eos = true})
        .token_ids;
  };
  const auto first = answer();
  ASSERT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);
  const std::string file = fs::directory_iterator(folder.path())->path().string();
  const absl::StatusOr<SpeculationPolicy> learned = LoadLearnedSpeculation(file);
  ASSERT_TRUE(learned.ok()) << learned.status();
  const double survival = FirstSurvival(*learned);
  EXPECT_GT(survival, FirstSurvival(SpeculationPolicy()));  // the target agrees with itself

  EXPECT_EQ(answer(), first);
  EXPECT_GT(FirstSurvival(*LoadLearnedSpeculation(file)), survival);  // learned on top of it

  std::ofstream(file) << "damaged";
  EXPECT_EQ(answer(), first);
  EXPECT_EQ(FirstSurvival(*LoadLearnedSpeculation(file)),
            survival);  // learned again from the start
}

}  // namespace
}  // namespace tandem
