#include "proof/remote/remote_law.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proof/remote/stand_in_engine_testing.h"
#include "proof/statistics.h"

namespace tandem {
namespace {

constexpr int kLength = StandInEngine::kDraftTokens + 2;

TEST(PrefixCells, AreTheLongestKnownBeginnings) {
  const std::vector<Draw> draws = {{1, 2}, {1, 2}, {1, 3}, {4, 5}, {4, kAnswerEnd}};
  const PrefixCells cells(draws, 2, 2);
  EXPECT_EQ(cells.size(), 4u);  // {}, {1}, {1, 2}, {4}
  EXPECT_EQ(cells.CellOf({1, 2, 9}), cells.CellOf({1, 2}));
  EXPECT_NE(cells.CellOf({1, 2}), cells.CellOf({1, 3}));
  EXPECT_EQ(cells.CellOf({4, 5}), cells.CellOf({4, kAnswerEnd}));
  EXPECT_EQ(cells.CellOf({7, 7}), cells.CellOf({}));
  const std::vector<int64_t> counts = cells.Count(draws);
  EXPECT_EQ(counts[cells.CellOf({4})], 2);
  EXPECT_EQ(counts[cells.CellOf({})], 0);
}

// The settings of a proof, on the stand-in.
std::vector<Question> Settings() {
  return {{.top_k = 8},
          {.temperature = 0.7, .top_k = 20},
          {},
          {.temperature = 0.8, .top_p = 0.8},
          {.min_p = 0.05},
          {.top_k = 20, .frequency_penalty = -1.5},
          {.top_k = 20, .logit_bias = {{3, 2.0}, {5, -3.0}, {7, 1.0}}},
          {.form = LawForm()}};
}

std::vector<Draw> DrawsOf(StandInEngine* engine, Question question, int runs) {
  question.max_tokens = kLength;
  question.n = 32;
  std::vector<Draw> draws;
  while (static_cast<int>(draws.size()) < runs) {
    RemoteReply reply = engine->Ask(question).value();
    for (RemoteAnswer& answer : reply.answers) draws.push_back(std::move(answer.tokens));
  }
  draws.resize(runs);
  return draws;
}

std::vector<RemoteLawTest> TestsOf(StandInFault fault, int seed, int runs, Question question) {
  question.prompt.ids = {seed * 7 % 48, seed * 13 % 48, seed * 29 % 48};
  StandInEngine plain({.seed = static_cast<uint64_t>(seed) + 1000000});
  StandInEngine other(
      {.speculates = true, .fault = fault, .seed = static_cast<uint64_t>(seed) + 2000000});
  return CompareDraws(DrawsOf(&plain, question, runs), DrawsOf(&other, question, runs), kLength);
}

TEST(CompareDraws, RaisesNoAlarmForASoundEngine) {
  constexpr int kLaws = 200;
  std::vector<double> p_values;
  int num_low[5] = {};
  for (int i = 0; i < kLaws; ++i) {
    const auto tests = TestsOf(StandInFault::kNone, i, 500, Settings()[i % 8]);
    ASSERT_EQ(tests.size(), 5u);
    for (size_t j = 0; j < tests.size(); ++j) {
      p_values.push_back(tests[j].p_value);
      num_low[j] += tests[j].p_value < 0.05;
    }
  }
  const std::vector<double> adjusted = HolmAdjusted(p_values);
  EXPECT_GT(*std::min_element(adjusted.begin(), adjusted.end()), kRemoteErrorRate);
  // 200 sound tests have 21 or more p-values below .05 in 1 of 1,000 cases.
  for (const int low : num_low) EXPECT_LE(low, 20);
}

// The p-value that a proof with 60 tests rejects.
constexpr double kRejected = 0.75 * kRemoteErrorRate / 60;

// 5 % of answers with one token that is likelier than drawn: a total variation of some .02, which
// is below what 16,000 answers show. The report gives that bound.
TEST(CompareDraws, MissesWhatIsBelowItsPower) {
  for (const RemoteLawTest& test :
       TestsOf(StandInFault::kArgmaxSometimes, 1, 16000, Settings()[2])) {
    EXPECT_GT(test.p_value, kRejected) << test.test;
    if (test.test == "two samples") {
      EXPECT_GT(SeenVariation(test.effective_runs, test.degrees, kRejected, 0.99), 0.02);
    }
  }
}

}  // namespace
}  // namespace tandem
