// Enumerates the law of the tokens that a round emits, under every rule, through the production
// judge. Planted mistakes show that the same check detects them.
#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/law_kit.h"
#include "tests/round_law.h"
#include "verify/acceptance.h"

namespace tandem {
namespace {

constexpr RoundSize kSizes[] = {{2, 2}, {3, 3}, {4, 4}, {2, 6}};

void ExpectLossless(const RoundWorld& world, size_t k, double tolerance, const std::string& label) {
  const std::vector<Path> paths = DraftedPaths(world.q, k);
  double accepted_by_token = 0.0;
  double accepted_by_block = 0.0;
  for (const AcceptanceRule rule : kAllRules) {
    SCOPED_TRACE(absl::StrCat(label, " ", std::string(NameOf(rule))));
    RoundEnumerator round(world, rule);
    round.AddAll(paths);
    EXPECT_EQ(round.num_strange_thresholds(), 0);
    EXPECT_LT(Bias(world, round, k), tolerance);
    EXPECT_NEAR(round.expected_accepted(), FormulaForAccepted(world, rule, k), k * tolerance);
    if (rule == AcceptanceRule::kToken) accepted_by_token = round.expected_accepted();
    if (rule == AcceptanceRule::kBlock) accepted_by_block = round.expected_accepted();
  }
  EXPECT_LE(accepted_by_token, accepted_by_block + k * tolerance) << label;
  EXPECT_LE(accepted_by_block, BoundForAccepted(world, k) + k * tolerance) << label;
}

// Makes a world whose ratios are rounded.
RoundWorld RoundedWorld(uint64_t seed, RoundSize size) {
  return {.vocab = size.vocab,
          .p = RandomTable(seed, [=](auto& r) { return RandomRow(r, size.vocab, 64, 0.2); }),
          .q = RandomTable(seed + 1, [=](auto& r) { return RandomRow(r, size.vocab, 64, 0.2); })};
}
// Each of k weights and one next row may be off by half a unit in the last place of f32.
constexpr double RoundedTolerance(size_t k) { return static_cast<double>(2 * k + 2) * 0x1p-24; }

TEST(Judge, EmitsTheTargetsLawExactly) {
  for (const RoundSize size : kSizes) {
    for (uint64_t seed = 10; seed < 26; seed += 2) {
      ExpectLossless(ExactWorld(seed, size), size.k, 1e-12,
                     absl::StrCat(size.vocab, ",", size.k, " seed ", seed));
    }
  }
}

TEST(Judge, EmitsTheTargetsLawUpToRounding) {
  for (const RoundSize size : kSizes) {
    for (uint64_t seed = 30; seed < 42; seed += 2) {
      ExpectLossless(RoundedWorld(seed, size), size.k, RoundedTolerance(size.k),
                     absl::StrCat(size.vocab, ",", size.k, " seed ", seed));
    }
  }
}

// Known values: token 10/9, block 11/9, bound 12/9.
TEST(Judge, MatchesKnownValuesForTwoTokens) {
  const double third = 1.0 / 3.0;
  const RoundWorld world{.vocab = 2,
                         .p =
                             [=](const Tokens&) {
                               return Row{third, 2 * third};
                             },
                         .q =
                             [=](const Tokens&) {
                               return Row{2 * third, third};
                             }};
  const std::vector<Path> paths = DraftedPaths(world.q, 2);
  RoundEnumerator by_token(world, AcceptanceRule::kToken);
  RoundEnumerator by_block(world, AcceptanceRule::kBlock);
  by_token.AddAll(paths);
  by_block.AddAll(paths);
  // Thirds and ratios are rounded to f32: 2 slots with 2 roundings each.
  EXPECT_NEAR(by_token.expected_accepted(), 10.0 / 9.0, 4 * 0x1p-24);
  EXPECT_NEAR(by_block.expected_accepted(), 11.0 / 9.0, 4 * 0x1p-24);
  EXPECT_NEAR(BoundForAccepted(world, 2), 12.0 / 9.0, 1e-12);
  EXPECT_LT(Bias(world, by_token, 2), RoundedTolerance(2));
  EXPECT_LT(Bias(world, by_block, 2), RoundedTolerance(2));
}

// A deterministic drafter has one-hot rows, written as `only`. Every rule accepts such a token with
// probability p(x), the highest that is possible.
TEST(Judge, IsLosslessForDeterministicDrafts) {
  for (uint64_t seed = 50; seed < 56; seed += 2) {
    RoundWorld world = ExactWorld(seed, {4, 3});
    world.one_hot_as_only = true;
    const RowOf q = world.q;
    world.q = [q](const Tokens& context) { return OneHot(4, ArgMaxOf(q(context))); };
    ExpectLossless(world, 3, 1e-12, absl::StrCat("seed ", seed));
    for (const AcceptanceRule rule : kAllRules) {
      RoundEnumerator round(world, rule);
      round.AddAll(DraftedPaths(world.q, 3));
      EXPECT_NEAR(round.expected_accepted(), BoundForAccepted(world, 3), 1e-12) << NameOf(rule);
    }
  }
}

// Two sampled tokens, then a looked-up one.
TEST(Judge, IsLosslessForMixedDrafts) {
  for (uint64_t seed = 60; seed < 66; seed += 2) {
    RoundWorld world = ExactWorld(seed, {3, 3});
    world.one_hot_as_only = true;
    const RowOf q = world.q;
    world.q = [q](const Tokens& context) {
      return context.size() < 2 ? q(context) : OneHot(3, (context[0] + context[1]) % 3);
    };
    ExpectLossless(world, 3, 1e-12, absl::StrCat("seed ", seed));
  }
}

TEST(Judge, IsLosslessForADraftWithASmallerVocabulary) {
  for (uint64_t seed = 70; seed < 76; seed += 2) {
    RoundWorld world = ExactWorld(seed, {5, 3});
    world.q = RandomTable(seed + 1, [](auto& r) { return RandomPowersOfTwo(r, 3); });
    ExpectLossless(world, 3, 1e-12, absl::StrCat("seed ", seed));
  }
}

// The rows of a draft in one pass.
TEST(Judge, IsLosslessForRowsThatIgnoreDraftedTokens) {
  for (const RoundSize size : kSizes) {
    for (uint64_t seed = 76; seed < 80; seed += 2) {
      RoundWorld world = ExactWorld(seed, size);
      world.q = Marginals(world.q);
      ExpectLossless(world, size.k, 1e-12, absl::StrCat(size.vocab, " seed ", seed));
    }
  }
}

TEST(Judge, IsLosslessForRaggedAndEmptyDrafts) {
  const RoundWorld world = ExactWorld(80, {3, 3});
  for (const AcceptanceRule rule : kAllRules) {
    // The length may depend on the drafted prefix, if the last drawn token stays.
    RoundEnumerator round(world, rule);
    for (const Path& first : DraftedPaths(world.q, 1)) {
      if (first.tokens[0] == 1) {
        round.Add(first);
        continue;
      }
      for (Path path : DraftedPaths(
               [&](const Tokens& x) {
                 return world.q(x.empty() ? first.tokens : With(first.tokens, x[0]));
               },
               2)) {
        path.tokens.insert(path.tokens.begin(), first.tokens[0]);
        round.Add({path.tokens, path.weight * first.weight});
      }
    }
    EXPECT_LT(Bias(world, round, 3), 1e-12) << NameOf(rule);
    RoundEnumerator nothing(world, rule);
    nothing.Add({{}, 1.0});
    EXPECT_LT(Bias(world, nothing, 0), 1e-12) << NameOf(rule);
    EXPECT_EQ(nothing.expected_accepted(), 0.0);
  }
}

// ---- Planted mistakes ----

enum class Mistake {
  kNone,
  kResidualIsTarget,     // draws from p itself after a rejection
  kUnscaledResidual,     // block with the token rule's residual
  kStopsAtFirstFailure,  // block with the token rule's loop
  kInnerFormulaAtEnd,    // block's last slot treated as if the draft continued
  kNeighboursDraftRow,   // q of the previous slot
};

// A second implementation of the rules, directly from their formulas, with an optional mistake.
class SecondJudge {
 public:
  explicit SecondJudge(Mistake mistake) : mistake_(mistake) {}

  Verdict operator()(AcceptanceRule rule, const Tokens& x, const std::vector<Distribution>& target,
                     const std::vector<Distribution>& draft, const RoundNoise& noise) const {
    const int k = static_cast<int>(x.size());
    const int vocab = static_cast<int>(target[0].probs.size());
    std::vector<Row> p, q;
    for (const Distribution& row : target) p.push_back(ToRow(row, vocab));
    for (int i = 0; i < k; ++i) {
      const bool neighbour = mistake_ == Mistake::kNeighboursDraftRow && i > 0;
      q.push_back(ToRow(draft[neighbour ? i - 1 : i], vocab));
    }
    const bool block = rule == AcceptanceRule::kBlock;
    int kept = 0;
    std::vector<double> survival = {1.0};
    for (int i = 0; i < k; ++i) {
      const double ratio = q[i][x[i]] > 0.0 ? p[i][x[i]] / q[i][x[i]] : 1.0;
      survival.push_back(block ? std::min(1.0, survival[i] * ratio) : 1.0);
      double threshold = block ? survival[i + 1] : ratio;
      if (block && (i + 1 < k || mistake_ == Mistake::kInnerFormulaAtEnd)) {
        const Row following = i + 1 < k ? q[i + 1] : Row(vocab, 1.0 / vocab);
        const double mass = Sum(Residual(p[i + 1], following, survival[i + 1]));
        threshold = survival[i + 1] >= 1.0 ? 1.0 : mass / (mass + 1.0 - survival[i + 1]);
      }
      if (noise.accept_uniform(i) < threshold) {
        kept = i + 1;
      } else if (!block || mistake_ == Mistake::kStopsAtFirstFailure) {
        break;
      }
    }
    if (kept == k) return {k, noise.draw_target(target[k], k)};
    const double scale = mistake_ == Mistake::kUnscaledResidual ? 1.0 : survival[kept];
    Row weights = Residual(p[kept], q[kept], scale);
    if (mistake_ == Mistake::kResidualIsTarget || Sum(weights) == 0.0) weights = p[kept];
    return {kept, noise.draw_residual(std::vector<float>(weights.begin(), weights.end()), kept)};
  }

 private:
  static double Sum(const Row& row) {
    double sum = 0.0;
    for (const double v : row) sum += v;
    return sum;
  }
  static Row Residual(const Row& p, const Row& q, double scale) {
    Row row(p.size());
    for (size_t v = 0; v < p.size(); ++v) row[v] = std::max(0.0, scale * p[v] - q[v]);
    return row;
  }

  Mistake mistake_;
};

// Returns the largest bias of the second judge over some worlds.
double LargestBias(AcceptanceRule rule, Mistake mistake) {
  double largest = 0.0;
  for (uint64_t seed = 100; seed < 110; seed += 2) {
    const RoundWorld world = RoundedWorld(seed, {3, 3});
    RoundEnumerator round(world, rule, SecondJudge(mistake));
    round.AddAll(DraftedPaths(world.q, 3));
    largest = std::max(largest, Bias(world, round, 3));
  }
  return largest;
}

TEST(PlantedMistakes, NothingIsSeenWithoutAMistake) {
  EXPECT_LT(LargestBias(AcceptanceRule::kToken, Mistake::kNone), RoundedTolerance(3));
  EXPECT_LT(LargestBias(AcceptanceRule::kBlock, Mistake::kNone), RoundedTolerance(3));
}

// Each bias is at least a hundred times the effect of rounding.
constexpr double kVisible = 1e-4;
TEST(PlantedMistakes, ResidualReplacedByTheTargetIsSeen) {
  EXPECT_GT(LargestBias(AcceptanceRule::kToken, Mistake::kResidualIsTarget), kVisible);
  EXPECT_GT(LargestBias(AcceptanceRule::kBlock, Mistake::kResidualIsTarget), kVisible);
}
TEST(PlantedMistakes, UnscaledResidualInBlockIsSeen) {
  EXPECT_GT(LargestBias(AcceptanceRule::kBlock, Mistake::kUnscaledResidual), kVisible);
}
TEST(PlantedMistakes, BlockStoppingAtItsFirstFailureIsSeen) {
  EXPECT_GT(LargestBias(AcceptanceRule::kBlock, Mistake::kStopsAtFirstFailure), kVisible);
}
TEST(PlantedMistakes, BlocksInnerFormulaAtTheLastSlotIsSeen) {
  EXPECT_GT(LargestBias(AcceptanceRule::kBlock, Mistake::kInnerFormulaAtEnd), kVisible);
}
TEST(PlantedMistakes, DraftRowOffByOneIsSeen) {
  EXPECT_GT(LargestBias(AcceptanceRule::kToken, Mistake::kNeighboursDraftRow), kVisible);
  EXPECT_GT(LargestBias(AcceptanceRule::kBlock, Mistake::kNeighboursDraftRow), kVisible);
}

// Mistakes in making the proposal. The judge is the production one.
TEST(PlantedMistakes, DroppingATokenForItsOwnLowProbabilityIsSeen) {
  const RoundWorld world = RoundedWorld(120, {3, 2});
  for (const AcceptanceRule rule : {AcceptanceRule::kToken, AcceptanceRule::kBlock}) {
    double biased = 0.0;
    for (const bool keeps_the_token : {true, false}) {
      RoundEnumerator round(world, rule);
      for (const Path& first : DraftedPaths(world.q, 1)) {
        const double highest = world.Q({}, ArgMaxOf(world.q({})));
        if (world.Q({}, first.tokens[0]) < highest) {  // ends the draft after or before this token
          round.Add({keeps_the_token ? first.tokens : Tokens(), first.weight});
          continue;
        }
        for (TokenId v = 0; v < 3; ++v) {
          const double weight = world.Q(first.tokens, v);
          if (weight > 0.0) round.Add({With(first.tokens, v), first.weight * weight});
        }
      }
      biased = Bias(world, round, 2);
      if (keeps_the_token) {
        EXPECT_LT(biased, RoundedTolerance(2));
      }
    }
    EXPECT_GT(biased, kVisible);
  }
}

TEST(PlantedMistakes, DroppingATokenBecauseItIsForbiddenIsSeen) {
  const RoundWorld world{.vocab = 3,
                         .p =
                             [](const Tokens&) {
                               return Row{0.0, 0.25, 0.75};
                             },
                         .q =
                             [](const Tokens&) {
                               return Row{0.5, 0.25, 0.25};
                             }};
  for (const AcceptanceRule rule : {AcceptanceRule::kToken, AcceptanceRule::kBlock}) {
    RoundEnumerator kept(world, rule);
    RoundEnumerator dropped(world, rule);
    for (const Path& path : DraftedPaths(world.q, 1)) {
      kept.Add(path);
      dropped.Add(path.tokens[0] == 0 ? Path{{}, path.weight} : path);
    }
    EXPECT_LT(Bias(world, kept, 1), 1e-12);
    EXPECT_GT(Bias(world, dropped, 1), 0.01);
  }
}

// (.5, .3, .2) becomes (.4, .2, .4).
TEST(PlantedMistakes, GreedyDraftRecordedWithItsSoftmaxIsSeen) {
  const RoundWorld world{.vocab = 3,
                         .p =
                             [](const Tokens&) {
                               return Row{0.5, 0.3, 0.2};
                             },
                         .q =
                             [](const Tokens&) {
                               return Row{0.3, 0.2, 0.5};
                             }};
  RoundEnumerator round(world, AcceptanceRule::kToken);
  round.Add({{2}, 1.0});
  const double expected[] = {0.4, 0.2, 0.4};
  const Law law = Completed(round.law(), world.p, 1);
  for (TokenId v = 0; v < 3; ++v) EXPECT_NEAR(law.at({v}), expected[v], 4 * 0x1p-24);
}

// Cutting a judged run to c tokens is wrong. The right way is to judge as if only c had been
// proposed.
TEST(PlantedMistakes, CuttingAJudgedRunIsSeen) {
  const RoundWorld world = RoundedWorld(130, {3, 3});
  // A token drawn after the first one stays: from the residual of slot 1, if that was rejected.
  const auto cut = [&](const Tokens& x, Outcome outcome) {
    if (outcome.num_accepted > 1) outcome = {1, world.p(Prefix(x, 1))};
    return outcome;
  };
  for (const AcceptanceRule rule : {AcceptanceRule::kToken, AcceptanceRule::kBlock}) {
    RoundEnumerator wrong(world, rule, Production, cut);
    wrong.AddAll(DraftedPaths(world.q, 3));
    EXPECT_GT(Bias(world, wrong, 3), kVisible) << NameOf(rule);
    RoundEnumerator right(world, rule);
    right.AddAll(DraftedPaths(world.q, 1));
    EXPECT_LT(Bias(world, right, 1), RoundedTolerance(1)) << NameOf(rule);
  }
}

// With `<=` in place of `<` a coin of 0 would accept a forbidden token. So coins are never 0 and
// the comparison is strict (for production see RejectsAtTheThresholdItself).
TEST(PlantedMistakes, AcceptingAtACoinOfZeroIsSeen) {
  const std::vector<Distribution> target(2, {.only = -1, .probs = {0.0f, 1.0f}});
  const std::vector<Distribution> draft(1, {.only = -1, .probs = {0.5f, 0.5f}});
  const auto accepts = [&](bool strict) {
    const auto coin = [strict](int) { return strict ? 0.0f : std::nextafter(0.0f, -1.0f); };
    const auto residual = [](absl::Span<const float>, int) -> TokenId { return 1; };
    const auto choose = [](const Distribution&, int) -> TokenId { return 1; };
    return Production(AcceptanceRule::kToken, {0}, target, draft, {coin, residual, choose})
        .num_accepted;
  };
  EXPECT_EQ(accepts(true), 0);
  EXPECT_EQ(accepts(false), 1);  // as `<=` would at 0
}

// ---- Noise that is not independent ----

// Runs rounds with production's random numbers, and completes each with the target's own choices.
// `accept` and `residual`: the streams that coins and residuals use. Returns the score of the fit
// to the target's law.
double ScoreOfTrials(AcceptanceRule rule, RandomStream accept, RandomStream residual) {
  constexpr int kTrials = 60000;
  constexpr size_t kDraftLength = 2;
  const RoundWorld world = RoundedWorld(140, {3, kDraftLength});
  std::map<Tokens, int64_t> counts;
  for (int trial = 0; trial < kTrials; ++trial) {
    const RandomSource random(trial);
    const auto place = [](RandomStream stream, int slot) {
      return RandomPlace{.stream = stream, .position = 5, .slot = static_cast<uint32_t>(slot)};
    };
    Tokens x;
    for (size_t i = 0; i < kDraftLength; ++i) {
      const Distribution q = ToDistribution(world.q(x));
      x.push_back(Draw(q, random, place(RandomStream::kDraft, static_cast<int>(i))));
    }
    const auto coin = [&](int slot) { return random.Uniform(place(accept, slot)); };
    const auto draw_residual = [&](absl::Span<const float> weights, int slot) {
      return DrawFromWeights(weights, random, place(residual, slot));
    };
    const auto choose = [&](const Distribution& row, int slot) {
      return Draw(row, random, {.position = 5 + static_cast<uint32_t>(slot)});
    };
    const Verdict verdict =
        Production(rule, x, world.TargetRows(x), world.DraftRows(x), {coin, draw_residual, choose});
    Tokens emitted = With(Prefix(x, verdict.num_accepted), verdict.next);
    while (emitted.size() <= kDraftLength) {
      const Distribution p = ToDistribution(world.p(emitted));
      emitted.push_back(choose(p, static_cast<int>(emitted.size())));
    }
    ++counts[emitted];
  }
  return FitScore(counts, PlainLaw(world.p, kDraftLength + 1));
}

// The seeds are fixed, so the results never change. By chance a score exceeds 4 once in 30,000.
constexpr double kLimit = 4.0;

TEST(SeededRounds, FollowTheTargetsLaw) {
  for (const AcceptanceRule rule : kAllRules) {
    EXPECT_LT(ScoreOfTrials(rule, RandomStream::kAccept, RandomStream::kResidual), kLimit)
        << NameOf(rule);
  }
}
TEST(SeededRounds, DetectCoinsSharedWithTheDraft) {
  for (const AcceptanceRule rule : {AcceptanceRule::kToken, AcceptanceRule::kBlock}) {
    EXPECT_GT(ScoreOfTrials(rule, RandomStream::kDraft, RandomStream::kResidual), 3 * kLimit)
        << NameOf(rule);
  }
}
TEST(SeededRounds, DetectResidualNoiseSharedWithTheDraft) {
  for (const AcceptanceRule rule : {AcceptanceRule::kToken, AcceptanceRule::kBlock}) {
    EXPECT_GT(ScoreOfTrials(rule, RandomStream::kAccept, RandomStream::kDraft), 3 * kLimit)
        << NameOf(rule);
  }
}

}  // namespace
}  // namespace tandem
