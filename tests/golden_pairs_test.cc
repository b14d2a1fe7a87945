// Greedy speculation with the golden pairs: the output and every count equal the reference's
// (tests/data/README.md) under every rule.
#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/string_view.h"
#include "engine/engine_testing.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

// Returns the first `size` entries of `counts`. Expects that all others are zero.
std::vector<int64_t> FirstOf(const std::array<int64_t, kMaxDraftTokens>& counts, size_t size) {
  EXPECT_TRUE(std::all_of(counts.begin() + size, counts.end(), [](int64_t n) { return n == 0; }));
  return {counts.begin(), counts.begin() + size};
}

class GoldenPairs : public testing::TestWithParam<std::string> {};

TEST_P(GoldenPairs, OutputAndCountsEqualTheReference) {
  const GoldenPair pair(GetParam());
  EngineOptions options = DraftModelOptionsFor(pair.target, pair.draft);
  options.threads = 2;
  const std::unique_ptr<Engine> engine = MakeEngine(options);
  for (const SortedJson& run : pair.runs) {
    for (const AcceptanceRule verifier : kAllRules) {
      SCOPED_TRACE(absl::StrCat("k ", run["k"].get<int>(), " ", View(NameOf(verifier))));
      const Completion got = Generate(engine.get(), {.prompt_ids = pair.prompt_ids,
                                                     .max_tokens = 64,
                                                     .sampling = {.temperature = 0.0f},
                                                     .ignore_eos = true,
                                                     .draft_tokens = run["k"].get<int>(),
                                                     .verifier = verifier});
      EXPECT_EQ(got.token_ids, pair.output_ids);
      EXPECT_EQ(got.finish_reason, FinishReason::kLength);
      EXPECT_EQ(got.verifier, verifier);
      EXPECT_EQ(got.draft_tokens, run["k"]);
      EXPECT_EQ(got.stats.rounds, run["rounds"]);
      EXPECT_EQ(got.stats.proposed, run["proposed"]);
      EXPECT_EQ(got.stats.accepted, run["accepted"]);
      EXPECT_EQ(got.stats.emitted, 64);
      const auto accepted = run["accepted_per_position"].get<std::vector<int64_t>>();
      const auto proposed = run["proposed_per_position"].get<std::vector<int64_t>>();
      EXPECT_EQ(FirstOf(got.stats.accepted_at, accepted.size()), accepted);
      EXPECT_EQ(FirstOf(got.stats.proposed_at, proposed.size()), proposed);
      EXPECT_EQ(got.provenance.size(), 64u);
      ExpectConsistent(got);
    }
  }
}

// The provenance letters agree with the reference in every round.
TEST_P(GoldenPairs, ProvenanceEqualsTheReferenceInEveryRound) {
  const GoldenPair pair(GetParam());
  const std::unique_ptr<Engine> engine = MakeEngine(DraftModelOptionsFor(pair.target, pair.draft));
  for (const SortedJson& run : pair.runs) {
    std::string want;
    for (size_t round = 0; round < run["proposed_per_round"].size(); ++round) {
      const int proposed = run["proposed_per_round"][round];
      const int accepted = run["accepted_per_round"][round];
      want += std::string(accepted, 'a');
      want += proposed == 0 ? 'p' : accepted == proposed ? 'b' : 'c';
    }
    std::string streamed;
    const auto got = engine->Generate({.prompt_ids = pair.prompt_ids,
                                       .max_tokens = 64,
                                       .sampling = {.temperature = 0.0f},
                                       .ignore_eos = true,
                                       .draft_tokens = run["k"].get<int>()},
                                      [&](const Piece& piece) {
                                        absl::StrAppend(&streamed, std::string(piece.provenance));
                                        return true;
                                      });
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(got->provenance, want);
    EXPECT_EQ(streamed, want);
  }
}

INSTANTIATE_TEST_SUITE_P(All, GoldenPairs,
                         testing::Values("perturbed", "shallow", "unrelated", "itself",
                                         "parallel/llama-parallel", "parallel/qwen2-parallel"),
                         [](const auto& info) {
                           return absl::StrReplaceAll(info.param, {{"/", "_"}, {"-", "_"}});
                         });

}  // namespace
}  // namespace tandem
