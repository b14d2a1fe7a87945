#include "model/sampling.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "base/source_path_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/checkpoint/safetensors.h"
#include "tandem/field_error.h"
#include "tandem/json_value.h"
#include "tests/law_kit.h"
#include "tests/status_testing.h"

namespace tandem {
namespace {

using Json = SortedJson;

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr double kHalfUnit = 0x1p-24;  // relative rounding of f32

// Makes a distribution from valid logits.
Distribution Make(const std::vector<float>& logits, const SamplingParams& params,
                  const TokenHistory* history = nullptr) {
  Distribution distribution;
  const absl::Status status = MakeDistribution(logits, params, history, &distribution);
  EXPECT_TRUE(status.ok()) << status;
  return distribution;
}

std::vector<TokenId> Kept(const Distribution& distribution) {
  if (distribution.only >= 0) return {distribution.only};
  std::vector<TokenId> ids;
  for (size_t v = 0; v < distribution.probs.size(); ++v) {
    if (distribution.probs[v] > 0.0f) ids.push_back(static_cast<TokenId>(v));
  }
  return ids;
}

std::vector<float> RandomLogits(std::mt19937_64& random, int size, float spread = 3.0f) {
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<float> logits(size);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

// ---- The reference's distributions ----

struct ReferenceRows {
  std::string bytes;
  int vocab = 0;
  std::vector<float> Row(int index) const {
    const auto entries = ParseSafetensors(
        {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}, "golden");
    EXPECT_TRUE(entries.ok()) << entries.status();
    for (const SafetensorsEntry& entry : *entries) {
      if (entry.name != "logits") continue;
      std::vector<float> row(vocab);
      std::memcpy(row.data(), entry.bytes.data() + sizeof(float) * index * vocab,
                  sizeof(float) * vocab);
      return row;
    }
    ADD_FAILURE() << "no logits";
    return {};
  }
};

SamplingParams ParamsOf(const Json& fields) {
  SamplingParams params{.temperature = fields["temperature"],
                        .top_k = fields["top_k"],
                        .top_p = fields["top_p"],
                        .min_p = fields["min_p"],
                        .repetition_penalty = fields["repetition_penalty"],
                        .frequency_penalty = fields["frequency_penalty"],
                        .presence_penalty = fields["presence_penalty"],
                        .logit_bias = {}};
  for (const auto& [id, bias] : fields["logit_bias"].items()) {
    params.logit_bias.emplace_back(std::stoi(id), bias);
  }
  return params;
}

// As tests/data/README.md explains, no value is near a cut-off, so the kept ids are equal. Entries
// below 1e-30 may be 0. f32 gives probabilities within 1e-7; 1e-5 is allowed.
TEST(MakeDistribution, EqualsTheReference) {
  const std::string data = SourcePath("tests/data/");
  ASSERT_OK_AND_ASSIGN(const auto text, ReadFile(data + "sampling/processed.json"));
  const Json reference = Json::parse(text);
  ASSERT_OK_AND_ASSIGN(const auto golden, ReadFile(data + std::string(reference["logits"])));
  const ReferenceRows rows{.bytes = golden, .vocab = reference["vocab_size"]};
  ASSERT_GT(reference["cases"].size(), 20u);
  for (const Json& c : reference["cases"]) {
    SCOPED_TRACE(c["params"].dump());
    const SamplingParams params = ParamsOf(c["params"]);
    TokenHistory history;
    history.AddPrompt(std::vector<TokenId>(c["prompt_ids"]));
    for (const TokenId id : c["output_ids"]) history.AddOutput(id);
    ASSERT_TRUE(params.Validate(rows.vocab).ok());
    const Distribution made = Make(rows.Row(c["row"]), params, &history);
    std::vector<double> expected(rows.vocab, 0.0);
    for (const Json& entry : c["probs"]) expected[entry[0].get<int>()] = entry[1];
    for (int v = 0; v < rows.vocab; ++v) {
      const double p = made.only >= 0 ? (v == made.only ? 1.0 : 0.0) : made.probs[v];
      ASSERT_NEAR(p, expected[v], 1e-5) << v;
      if (expected[v] == 0.0) {
        EXPECT_EQ(p, 0.0) << v;
      }
      if (expected[v] > 1e-30) {
        EXPECT_GT(p, 0.0) << v;
      }
    }
    EXPECT_EQ(made.only >= 0, params.is_greedy());
  }
}

// At temperature 1 the shift d = x - max is rounded once, which changes exp by |d| half units. exp
// is within 2 units. The sum (16 chains of n / 16 numbers, then a tree of 4 steps), its inverse and
// the last product add n / 16 + 4 + 2 half units.
TEST(MakeDistribution, SoftmaxIsAccurate) {
  std::mt19937_64 random(1);
  for (const int size : {1, 2, 15, 16, 17, 100, 1000, 5003}) {
    const std::vector<float> logits = RandomLogits(random, size);
    const Distribution made = Make(logits, SamplingParams());
    const double top = *std::max_element(logits.begin(), logits.end());
    double sum = 0.0;
    for (const float logit : logits) sum += std::exp(logit - top);
    for (int v = 0; v < size; ++v) {
      const double shift = logits[v] - top;
      const double exact = std::exp(shift) / sum;
      const double half_units = -shift + 4 + (size / 16.0 + 5) + 2;
      EXPECT_NEAR(made.probs[v], exact, exact * half_units * kHalfUnit) << size << " " << v;
    }
  }
}

// With a temperature the products x / T of both values are rounded too, and so is 1 / T.
TEST(MakeDistribution, SoftmaxIsAccurateAtAnyTemperature) {
  std::mt19937_64 random(2);
  for (const float temperature : {1.1e-5f, 0.01f, 0.3f, 0.7f, 1.6f, 100.0f}) {
    const std::vector<float> logits = RandomLogits(random, 300);
    const Distribution made = Make(logits, {.temperature = temperature});
    const double top = *std::max_element(logits.begin(), logits.end());
    double sum = 0.0;
    for (const float logit : logits) sum += std::exp((logit - top) / double{temperature});
    for (size_t v = 0; v < logits.size(); ++v) {
      const double shift = (logits[v] - top) / double{temperature};
      const double exact = std::exp(shift) / sum;
      const double half_units =
          (std::abs(logits[v]) + top) / temperature - 2 * shift + 4 + (300 / 16.0 + 5) + 2;
      EXPECT_NEAR(made.probs[v], exact,
                  exact * std::expm1(half_units * kHalfUnit) + std::numeric_limits<float>::min())
          << temperature << " " << v;
    }
  }
}

// ---- Edge cases of the steps ----

TEST(ArgMax, ReturnsTheLowestOfEqualsAndRejectsNanAndInfinity) {
  EXPECT_EQ(ArgMax({1.0f, 3.0f, 3.0f, 2.0f}), 1);
  EXPECT_EQ(ArgMax({-kInfinity, -5.0f}), 1);
  EXPECT_EQ(ArgMax({-0.0f, 0.0f}), 0);
  EXPECT_EQ(ArgMax({}), -1);
  EXPECT_EQ(ArgMax({-kInfinity, -kInfinity}), -1);
  for (const int size : {1, 16, 17, 100}) {
    for (int bad = 0; bad < size; ++bad) {
      std::vector<float> values(size, 1.0f);
      EXPECT_EQ(ArgMax(values), 0);
      values[bad] = 2.0f;
      EXPECT_EQ(ArgMax(values), bad);
      values[bad] = std::nanf("");
      EXPECT_EQ(ArgMax(values), -1);
      values[bad] = kInfinity;
      EXPECT_EQ(ArgMax(values), -1);
    }
  }
}

TEST(MakeDistribution, RejectsInvalidRows) {
  const TokenHistory history;
  for (const SamplingParams& params :
       {SamplingParams(), SamplingParams{.temperature = 0.0f}, SamplingParams{.top_k = 1},
        SamplingParams{.presence_penalty = 1.0f}}) {
    Distribution distribution;
    for (const std::vector<float>& row :
         {std::vector<float>{1.0f, std::nanf(""), 2.0f}, std::vector<float>{1.0f, kInfinity},
          std::vector<float>(20, -kInfinity), std::vector<float>()}) {
      const absl::Status status = MakeDistribution(row, params, &history, &distribution);
      EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    }
    EXPECT_TRUE(MakeDistribution({-kInfinity, 0.0f}, params, &history, &distribution).ok());
    EXPECT_THAT(Kept(distribution), ElementsAre(1));
  }
}

// Temperature and penalties may overflow f32.
TEST(MakeDistribution, RejectsOverflows) {
  Distribution distribution;
  EXPECT_FALSE(MakeDistribution({3e38f, 0.0f}, {.temperature = 0.5f}, nullptr, &distribution).ok());
  TokenHistory history;
  history.AddOutput(0);
  for (const float temperature : {0.0f, 1.0f}) {
    EXPECT_FALSE(MakeDistribution({3e38f, 0.0f},
                                  {.temperature = temperature, .repetition_penalty = 0.1f},
                                  &history, &distribution)
                     .ok());
  }
}

TEST(MakeDistribution, TopKKeepsTheLowestIdsOfEquals) {
  const std::vector<float> logits = {1.0f, 2.0f, 2.0f, 0.0f, 2.0f, 2.0f};
  EXPECT_THAT(Kept(Make(logits, {.top_k = 1})), ElementsAre(1));
  EXPECT_THAT(Kept(Make(logits, {.top_k = 2})), ElementsAre(1, 2));
  EXPECT_THAT(Kept(Make(logits, {.top_k = 4})), ElementsAre(1, 2, 4, 5));
  EXPECT_THAT(Kept(Make(logits, {.top_k = 5})), ElementsAre(0, 1, 2, 4, 5));
  EXPECT_THAT(Kept(Make(logits, {.top_k = 6})), testing::SizeIs(6));
  EXPECT_THAT(Kept(Make(logits, {.top_k = 1 << 30})), testing::SizeIs(6));
  EXPECT_THAT(Kept(Make(std::vector<float>(1000, 1.0f), {.top_k = 3})), ElementsAre(0, 1, 2));
}

// Four equal probabilities of 1/4 are exact in f32, so the sum can reach top_p exactly.
TEST(MakeDistribution, TopPStopsWhereItIsReachedExactly) {
  const std::vector<float> logits(4, -1.5f);
  EXPECT_THAT(Kept(Make(logits, {.top_p = 0.25f})), ElementsAre(0));
  EXPECT_THAT(Kept(Make(logits, {.top_p = 0.5f})), ElementsAre(0, 1));
  EXPECT_THAT(Kept(Make(logits, {.top_p = std::nextafter(0.5f, 1.0f)})), ElementsAre(0, 1, 2));
  EXPECT_THAT(Kept(Make(logits, {.top_p = 0.75f})), ElementsAre(0, 1, 2));
  EXPECT_THAT(Kept(Make(logits, {.top_p = 1e-9f})), ElementsAre(0));
  EXPECT_THAT(Kept(Make(logits, {.top_p = 0.99999f})), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(Make(logits, {.top_p = 0.5f}).probs, ElementsAre(0.5f, 0.5f, 0.0f, 0.0f));
}

// The kept set follows the definition, and does not depend on the order of tokens in the row.
TEST(MakeDistribution, TopPKeepsTheShortestPrefix) {
  std::mt19937_64 random(3);
  for (int trial = 0; trial < 60; ++trial) {
    const int size = 1 + static_cast<int>(random() % 3000);
    const float top_p = std::uniform_real_distribution<float>(0.01f, 0.9999f)(random);
    const std::vector<float> logits = RandomLogits(random, size, trial % 2 == 0 ? 3.0f : 0.1f);
    const Distribution all = Make(logits, SamplingParams());
    std::vector<TokenId> order(size);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](TokenId a, TokenId b) { return all.probs[a] > all.probs[b]; });
    std::vector<TokenId> expected;
    double sum = 0.0;
    for (const TokenId v : order) {
      if (sum >= top_p) break;
      expected.push_back(v);
      sum += all.probs[v];
    }
    std::sort(expected.begin(), expected.end());
    const Distribution made = Make(logits, {.top_p = top_p});
    ASSERT_EQ(Kept(made), expected) << size << " " << top_p;
    for (const TokenId v : expected) EXPECT_NEAR(made.probs[v], all.probs[v] / sum, 1e-6);
  }
}

TEST(MakeDistribution, MinPComparesWithTheLargestProbability) {
  const std::vector<float> equal(5, 2.0f);
  EXPECT_THAT(Kept(Make(equal, {.min_p = 1.0f})), testing::SizeIs(5));
  const std::vector<float> logits = {std::log(0.5f), std::log(0.2f), std::log(0.19f), -9.0f};
  EXPECT_THAT(Kept(Make(logits, {.min_p = 0.39f})), ElementsAre(0, 1));
  EXPECT_THAT(Kept(Make(logits, {.min_p = 0.41f})), ElementsAre(0));
  EXPECT_THAT(Kept(Make(logits, {.min_p = 1.0f})), ElementsAre(0));
  EXPECT_THAT(Kept(Make(logits, {.min_p = 0.0f})), testing::SizeIs(4));
  // min_p applies to probabilities after the temperature.
  EXPECT_THAT(Kept(Make(logits, {.temperature = 2.0f, .min_p = 0.41f})), ElementsAre(0, 1, 2));
}

TEST(MakeDistribution, GreedyTakesTheArgMaxAfterPenaltiesAndBias) {
  const std::vector<float> logits = {3.0f, 2.9f, -1.0f, 2.8f};
  TokenHistory history;
  history.AddPrompt({0});
  history.AddOutput(1);
  const auto greedy = [&](SamplingParams params) {
    params.temperature = 0.0f;
    // The steps after the temperature do not apply.
    params.top_p = 0.1f;
    params.min_p = 1.0f;
    const Distribution made = Make(logits, params, &history);
    EXPECT_THAT(made.probs, IsEmpty());
    return made.only;
  };
  EXPECT_EQ(greedy({}), 0);
  EXPECT_EQ(greedy({.repetition_penalty = 1.5f}), 3);
  EXPECT_EQ(greedy({.presence_penalty = 2.0f}), 0);  // counts output tokens only
  EXPECT_EQ(greedy({.logit_bias = {{2, 4.5f}}}), 2);
  EXPECT_EQ(greedy({.logit_bias = {{0, -100.0f}}}), 1);
  EXPECT_EQ(greedy({.frequency_penalty = 1.0f, .logit_bias = {{0, -1.0f}}}), 3);
  EXPECT_EQ(greedy({.logit_bias = {{1, 0.1f}}}), 0);  // a tie, up to rounding
  EXPECT_TRUE((SamplingParams{.temperature = 0.99e-5f}).is_greedy());
  EXPECT_FALSE((SamplingParams{.temperature = 1e-5f}).is_greedy());
}

TEST(MakeDistribution, MasksEndingTokensUntilMinTokens) {
  // Ids beyond the row are ignored, a bias does not lift a mask, and prompt tokens do not count.
  const SamplingParams params = {
      .logit_bias = {{1, 50.0f}}, .min_tokens = 2, .ending_tokens = {1, 2, 9}};
  TokenHistory history;
  history.AddPrompt({1, 1, 1});
  for (const int change : {0, 1, 1, 1, -1, -1}) {
    if (change > 0) history.AddOutput(3);
    if (change < 0) history.RemoveOutput(3);
    const Distribution want = history.num_output() < 2
                                  ? Make({1.0f, -kInfinity, -kInfinity, 0.0f}, {}, nullptr)
                                  : Make({1.0f, 53.0f, 2.0f, 0.0f}, {}, nullptr);
    EXPECT_EQ(Make({1.0f, 3.0f, 2.0f, 0.0f}, params, &history).probs, want.probs);
  }
}

// A draft's row may be shorter than the target's vocabulary, to which counts and biases refer.
TEST(MakeDistribution, IgnoresCountsAndBiasesBeyondTheRow) {
  TokenHistory history;
  history.AddPrompt({1, 5});
  history.AddOutput(7);
  const std::vector<float> logits = {0.0f, 1.0f, 0.5f};
  const SamplingParams edits = {.repetition_penalty = 2.0f, .presence_penalty = 0.5f};
  SamplingParams more_edits = edits;
  more_edits.logit_bias = {{3, 50.0f}, {100, 5.0f}};
  TokenHistory known;
  known.AddPrompt({1});
  EXPECT_EQ(Make(logits, more_edits, &history).probs, Make(logits, edits, &known).probs);
}

TEST(MakeDistribution, ReusesADistributionOfAnyKind) {
  Distribution distribution;
  const std::vector<float> row = {0.0f, 1.0f};
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(MakeDistribution(row, {.temperature = 0.0f}, nullptr, &distribution).ok());
    EXPECT_EQ(distribution.only, 1);
    EXPECT_THAT(distribution.probs, IsEmpty());
    ASSERT_TRUE(MakeDistribution(row, {}, nullptr, &distribution).ok());
    EXPECT_EQ(distribution.only, -1);
    EXPECT_THAT(distribution.probs, testing::SizeIs(2));
  }
}

TEST(TokenHistory, AddingAndRemovingUndoEachOther) {
  TokenHistory history;
  history.AddPrompt({3, 3, 4});
  history.AddOutput(3);
  history.AddOutput(9);
  history.AddOutput(9);
  EXPECT_EQ(history.counts().at(3).in_prompt, 2);
  EXPECT_EQ(history.counts().at(3).in_output, 1);
  EXPECT_EQ(history.counts().at(9).in_output, 2);
  history.RemoveOutput(9);
  history.RemoveOutput(9);
  history.RemoveOutput(3);
  EXPECT_FALSE(history.counts().contains(9));
  EXPECT_EQ(history.counts().at(3).in_output, 0);
  EXPECT_EQ(history.counts().size(), 2u);
  EXPECT_DEATH(history.RemoveOutput(9), "check failed");
  EXPECT_DEATH(history.RemoveOutput(4), "check failed");
}

// ---- Draws ----

// The race by definition, over all entries.
TokenId ExhaustiveDraw(const std::vector<float>& weights, const RandomSource& random,
                       const RandomPlace& place) {
  TokenId winner = -1;
  float shortest = kInfinity;
  for (size_t v = 0; v < weights.size(); ++v) {
    if (weights[v] <= 0.0f) continue;
    const uint32_t bits = random.Block(place, static_cast<uint32_t>(v / 4))[v % 4];
    const float time = RandomSource::ToExponential(bits) / weights[v];
    if (time < shortest) {
      shortest = time;
      winner = static_cast<TokenId>(v);
    }
  }
  return winner;
}

// Makes weights of several shapes: flat, peaked, sparse, with a wide range, and with equal entries.
std::vector<float> RandomWeights(std::mt19937_64& random, int size, int shape) {
  std::vector<float> weights(size);
  std::uniform_real_distribution<float> uniform(0.0f, 1.0f);
  for (float& w : weights) {
    const float u = uniform(random);
    w = shape == 0   ? u
        : shape == 1 ? std::pow(u, 30.0f)
        : shape == 2 ? (u < 0.95f ? 0.0f : u)
        : shape == 3 ? std::exp(-80.0f * u)
                     : 0.25f;
  }
  weights[random() % size] = 0.5f;
  return weights;
}

TEST(DrawFromWeights, EqualsTheRaceOfAllEntries) {
  std::mt19937_64 random(4);
  int num_upsets = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    const int size = 1 + static_cast<int>(random() % (trial % 10 == 0 ? 5000 : 70));
    const std::vector<float> weights = RandomWeights(random, size, trial % 5);
    const RandomSource source(random());
    const RandomPlace place{.stream = static_cast<RandomStream>(trial % 4),
                            .position = static_cast<uint32_t>(trial),
                            .slot = static_cast<uint32_t>(trial % 7),
                            .retry = static_cast<uint32_t>(trial % 3)};
    const TokenId winner = DrawFromWeights(weights, source, place);
    ASSERT_EQ(winner, ExhaustiveDraw(weights, source, place)) << trial << " of " << size;
    ASSERT_GT(weights[winner], 0.0f);
    num_upsets += winner != ArgMax(weights);
  }
  EXPECT_GT(num_upsets, 1000);  // the favourite does not always win
}

TEST(DrawFromWeights, DoesNotDependOnScale) {
  std::mt19937_64 random(5);
  for (int trial = 0; trial < 1000; ++trial) {
    const std::vector<float> weights = RandomWeights(random, 50, trial % 3);
    const RandomSource source(random());
    const TokenId winner = DrawFromWeights(weights, source, {});
    for (const float scale : {0x1p-20f, 0x1p10f, 0.3f, 1e-9f, 7.0f}) {
      std::vector<float> scaled = weights;
      for (float& w : scaled) w *= scale;
      ASSERT_EQ(DrawFromWeights(scaled, source, {}), winner) << scale;
    }
  }
}

TEST(DrawFromWeights, NeverDrawsATokenWithoutWeight) {
  for (int size = 1; size < 40; ++size) {
    EXPECT_EQ(DrawFromWeights(std::vector<float>(size, 0.0f), RandomSource(1), {}), -1);
    for (TokenId only = 0; only < size; ++only) {
      std::vector<float> weights(size, 0.0f);
      for (const float weight : {1.0f, 1e-30f, std::numeric_limits<float>::denorm_min()}) {
        weights[only] = weight;
        EXPECT_EQ(DrawFromWeights(weights, RandomSource(size), {}), only);
      }
    }
  }
  EXPECT_EQ(DrawFromWeights({}, RandomSource(1), {}), -1);
}

// The seeds are fixed, so the result never changes. By chance a score exceeds 4 once in 30,000.
TEST(DrawFromWeights, FollowsTheWeights) {
  const std::vector<float> weights = {0.4f, 0.0f, 0.3f, 0.2f, 0.0899f, 0.01f, 0.0001f, 0.0f};
  Law law;
  for (size_t v = 0; v < weights.size(); ++v) {
    if (weights[v] > 0.0f) law[{static_cast<TokenId>(v)}] = weights[v];
  }
  // Over seeds, over positions and over slots.
  for (int way = 0; way < 3; ++way) {
    std::map<Tokens, int64_t> counts;
    for (uint32_t i = 0; i < 200000; ++i) {
      const RandomPlace place{.position = way == 1 ? i : 0, .slot = way == 2 ? i : 0};
      ++counts[{DrawFromWeights(weights, RandomSource(way == 0 ? i : 7), place)}];
    }
    EXPECT_LT(FitScore(counts, law), 4.0) << way;
    EXPECT_GT(counts[{6}], 0);
  }
}

// 100,000 tokens of weight 1e-8 next to one of weight 1 get a thousandth of the draws. With noise
// of only 24 bits they would get none. 12,000 draws give 12 of them on average; by chance the
// bounds of 2 and 30 are exceeded once in 10,000.
TEST(DrawFromWeights, DrawsRareTokens) {
  std::vector<float> weights(100001, 1e-8f);
  weights[50000] = 1.0f;
  int num_rare = 0;
  for (uint32_t i = 0; i < 12000; ++i) {
    num_rare += DrawFromWeights(weights, RandomSource(i), {}) != 50000;
  }
  EXPECT_GT(num_rare, 2);
  EXPECT_LT(num_rare, 30);
}

TEST(Draw, ReturnsASingleTokenWithoutNoise) {
  EXPECT_EQ(Draw({.only = 5, .probs = {}}, RandomSource(1), {}), 5);
  EXPECT_EQ(Draw({.only = -1, .probs = {0.0f, 1.0f}}, RandomSource(1), {}), 1);
}

// ---- Log-probabilities ----

TEST(LogprobsOf, EqualsTheLogSoftmaxOfRawRows) {
  std::mt19937_64 random(6);
  for (const int size : {1, 7, 509}) {
    std::vector<float> logits = RandomLogits(random, size, 5.0f);
    if (size > 2) logits[size / 2] = -kInfinity;
    double sum = 0.0;
    for (const float logit : logits) sum += std::exp(double{logit});
    for (TokenId v = 0; v < size; ++v) {
      const TokenLogprobs result = LogprobsOf(logits, v, 3);
      const double exact = logits[v] - std::log(sum);
      EXPECT_EQ(result.id, v);
      // The result is computed in double and rounded once.
      if (std::isfinite(exact)) {
        EXPECT_NEAR(result.logprob, exact, std::abs(exact) * kHalfUnit + 1e-12);
      } else {
        EXPECT_EQ(result.logprob, -kInfinity);
      }
      ASSERT_EQ(result.top.size(), std::min<size_t>(3, size));
      EXPECT_EQ(result.top[0].first, ArgMax(logits));
      EXPECT_TRUE(std::is_sorted(result.top.begin(), result.top.end(),
                                 [](const auto& a, const auto& b) { return a.second > b.second; }));
    }
    EXPECT_THAT(LogprobsOf(logits, 0, 0).top, IsEmpty());
  }
}

TEST(LogprobsOf, ListsTheLowestIdsOfEqualsFirst) {
  const float half = std::log(0.5f);
  EXPECT_THAT(LogprobsOf(std::vector<float>{-kInfinity, 1.0f, 1.0f}, 2, 2).top,
              ElementsAre(Pair(1, half), Pair(2, half)));
  EXPECT_THAT(LogprobsOf(Distribution{.only = -1, .probs = {0.0f, 0.5f, 0.5f}}, 2, 9).top,
              ElementsAre(Pair(1, half), Pair(2, half)));
}

TEST(LogprobsOf, EqualsTheLogOfProcessedRows) {
  const Distribution sampled{.only = -1, .probs = {0.25f, 0.0f, 0.75f}};
  EXPECT_EQ(LogprobsOf(sampled, 0, -1).logprob, std::log(0.25f));
  EXPECT_EQ(LogprobsOf(sampled, 1, -1).logprob, -kInfinity);
  EXPECT_THAT(LogprobsOf(sampled, 0, 5).top,
              ElementsAre(Pair(2, std::log(0.75f)), Pair(0, std::log(0.25f))));
  const Distribution greedy{.only = 2, .probs = {}};
  EXPECT_EQ(LogprobsOf(greedy, 2, 5).logprob, 0.0f);
  EXPECT_EQ(LogprobsOf(greedy, 1, 5).logprob, -kInfinity);
  EXPECT_THAT(LogprobsOf(greedy, 1, 5).top, ElementsAre(Pair(2, 0.0f)));
  EXPECT_THAT(LogprobsOf(greedy, 1, 0).top, IsEmpty());
}

// ---- Parameters ----

TEST(SamplingParams, ValidateChecksEveryLimit) {
  using P = SamplingParams;
  const P allowed[] = {P{.temperature = 0.0f},
                       P{.temperature = 1e30f},
                       P{.top_k = 0},
                       P{.top_k = 1 << 30},
                       P{.top_p = std::numeric_limits<float>::denorm_min()},
                       P{.top_p = 1.0f},
                       P{.min_p = 0.0f},
                       P{.min_p = 1.0f},
                       P{.repetition_penalty = 1e-30f},
                       P{.repetition_penalty = 100.0f},
                       P{.frequency_penalty = -2.0f},
                       P{.frequency_penalty = 2.0f},
                       P{.presence_penalty = -2.0f},
                       P{.presence_penalty = 2.0f},
                       P{.logit_bias = {{0, -100.0f}, {9, 100.0f}}}};
  for (const P& params : allowed) EXPECT_TRUE(params.Validate(10).ok()) << params.Validate(10);

  const float nan = std::nanf("");
  const struct {
    const char* field;
    P params;
  } refused[] = {{"temperature", {.temperature = -1e-30f}},
                 {"temperature", {.temperature = nan}},
                 {"temperature", {.temperature = kInfinity}},
                 {"top_k", {.top_k = -1}},
                 {"top_p", {.top_p = 0.0f}},
                 {"top_p", {.top_p = std::nextafter(1.0f, 2.0f)}},
                 {"top_p", {.top_p = nan}},
                 {"min_p", {.min_p = -1e-30f}},
                 {"min_p", {.min_p = std::nextafter(1.0f, 2.0f)}},
                 {"min_p", {.min_p = nan}},
                 {"repetition_penalty", {.repetition_penalty = 0.0f}},
                 {"repetition_penalty", {.repetition_penalty = kInfinity}},
                 {"repetition_penalty", {.repetition_penalty = nan}},
                 {"frequency_penalty", {.frequency_penalty = std::nextafter(2.0f, 3.0f)}},
                 {"frequency_penalty", {.frequency_penalty = -2.1f}},
                 {"frequency_penalty", {.frequency_penalty = nan}},
                 {"presence_penalty", {.presence_penalty = std::nextafter(-2.0f, -3.0f)}},
                 {"presence_penalty", {.presence_penalty = 2.1f}},
                 {"presence_penalty", {.presence_penalty = nan}},
                 {"logit_bias", {.logit_bias = {{10, 0.0f}}}},
                 {"logit_bias", {.logit_bias = {{-1, 0.0f}}}},
                 {"logit_bias", {.logit_bias = {{3, 100.1f}}}},
                 {"logit_bias", {.logit_bias = {{1, 1.0f}, {3, nan}}}}};
  for (const auto& [field, params] : refused) {
    const absl::Status status = params.Validate(10);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field;
    EXPECT_EQ(FieldOf(status), field);
  }
}

}  // namespace
}  // namespace tandem
