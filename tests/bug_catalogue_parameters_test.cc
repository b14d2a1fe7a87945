// The bug catalogue (docs/bug_catalogue.md), sections 3 and 6: seeds and sampling parameters, and
// the largest pass.
#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "engine/engine_testing.h"
#include "gtest/gtest.h"
#include "model/sampling.h"

namespace tandem {
namespace {

// Row 27. A seed gives the same text alone, in a batch, in another order, and with every draft
// length. Without a seed every request differs, even in a batch with seeded ones.
TEST(BugCatalogue, ASeedGivesTheSameTextInAnyBatchRow27) {
  const GoldenPair pair("shallow");
  EngineOptions options = CpuOptionsFor(pair.target, pair.draft);
  options.page_size = 4;
  const std::unique_ptr<Engine> engine = MakeEngine(options);
  const auto seeded = [&](uint64_t seed, int k) {
    return Request{.prompt_ids = pair.prompt_ids,
                   .max_tokens = 20,
                   .sampling = {.temperature = 0.9f, .frequency_penalty = 0.2f},
                   .seed = seed,
                   .ignore_eos = true,
                   .draft_tokens = k};
  };
  std::vector<std::vector<TokenId>> alone;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    alone.push_back(Generate(engine.get(), seeded(seed, 0)).token_ids);
  }
  EXPECT_EQ(std::set(alone.begin(), alone.end()).size(), 4u);
  std::mt19937_64 random(1);
  std::vector<uint64_t> order = {0, 1, 2, 3, 0, 1, 2, 3};
  std::set<std::vector<TokenId>> unseeded;
  for (int trial = 0; trial < 5; ++trial) {
    std::shuffle(order.begin(), order.end(), random);
    std::vector<Request> requests;
    for (const uint64_t seed : order) {
      requests.push_back(seeded(seed, static_cast<int>(random() % 9)));
      requests.push_back(seeded(0, 4));
      requests.back().seed.reset();
    }
    const std::vector<Completion> got = GenerateAll(engine.get(), requests);
    for (size_t i = 0; i < order.size(); ++i) {
      EXPECT_EQ(got[2 * i].token_ids, alone[order[i]]);
      unseeded.insert(got[2 * i + 1].token_ids);
    }
  }
  EXPECT_EQ(unseeded.size(), 5 * order.size());
}

// Row 33. The kept tokens do not depend on their positions in the row, as long as no two logits are
// equal.
TEST(BugCatalogue, TheKeptTokensAreTheSameInEveryOrderRow33) {
  std::mt19937_64 random(11);
  for (const int size : {9, 257, 1000}) {
    std::vector<float> logits(size);
    for (float& logit : logits) logit = std::normal_distribution<float>(0.0f, 3.0f)(random);
    for (const SamplingParams& params :
         {SamplingParams{.top_k = 7}, SamplingParams{.top_p = 0.7f}, SamplingParams{.min_p = 0.05f},
          SamplingParams{.top_k = 40, .top_p = 0.9f, .min_p = 0.01f}}) {
      Distribution want;
      ASSERT_TRUE(MakeDistribution(logits, params, nullptr, &want).ok());
      std::vector<TokenId> order(size);
      std::iota(order.begin(), order.end(), 0);
      for (int trial = 0; trial < 10; ++trial) {
        std::shuffle(order.begin(), order.end(), random);
        std::vector<float> permuted(size);
        for (int v = 0; v < size; ++v) permuted[order[v]] = logits[v];
        Distribution got;
        ASSERT_TRUE(MakeDistribution(permuted, params, nullptr, &got).ok());
        for (int v = 0; v < size; ++v) {
          EXPECT_EQ(got.probs[order[v]] > 0.0f, want.probs[v] > 0.0f) << size << " " << v;
        }
      }
    }
  }
}

// Row 64. The largest possible pass, a full batch with the longest drafts: as the first pass, and
// after small ones.
TEST(BugCatalogue, TheLargestBatchWithTheLongestDraftsRow64) {
  for (const std::string name : {"itself", "shallow"}) {
    const GoldenPair pair(name);
    std::vector<Request> requests;
    for (const std::vector<TokenId>& prompt : PromptsFrom(pair.prompt_ids, 8)) {
      requests.push_back({.prompt_ids = prompt,
                          .max_tokens = 70,
                          .sampling = kGreedy,
                          .ignore_eos = true,
                          .logprobs = {.num_top = 2}});
    }
    std::vector<Request> doubled = requests;
    doubled.insert(doubled.end(), requests.begin(), requests.end());
    const std::vector<Completion> plain =
        GenerateAll(MakeEngine(CpuOptionsFor(pair.target, "")).get(), requests);
    for (const bool small_first : {false, true}) {
      EngineOptions options = DraftModelOptionsFor(pair.target, pair.draft);
      options.max_batch = 16;
      options.draft_tokens = kMaxDraftTokens;
      const std::unique_ptr<Engine> engine = MakeEngine(options);
      if (small_first) Generate(engine.get(), {.prompt_ids = {1}, .max_tokens = 2});
      const std::vector<Completion> got = GenerateAll(engine.get(), doubled);
      for (size_t i = 0; i < got.size(); ++i) {
        ExpectSameOutput(got[i], plain[i % plain.size()]);
        ExpectConsistent(got[i]);
        EXPECT_GT(got[i].stats.proposed_at[kMaxDraftTokens - 1], 0);
      }
    }
  }
}

}  // namespace
}  // namespace tandem
