#include "verify/choice_scores.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "base/philox.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/sampling.h"
#include "tests/fake_model.h"

namespace tandem {
namespace {

using Tokens = std::vector<TokenId>;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kChoicePageSize = 4;

// A target and its cache.
struct ChoiceWorld {
  explicit ChoiceWorld(int num_pages = 400, FakeModel::Options options = {})
      : cache(kChoicePageSize, num_pages), target(cache.get(), std::move(options)) {}

  // Returns a sequence that holds the prompt without its last token.
  KvSequence Read(const Tokens& prompt) {
    KvSequence kv = cache->NewSequence();
    if (prompt.size() == 1) return kv;
    const ForwardRequest request{
        .tokens = absl::MakeConstSpan(prompt).first(prompt.size() - 1), .kv = &kv, .num_logits = 0};
    EXPECT_TRUE(target.Forward({&request, 1}).ok());
    return kv;
  }

  // The rows after each token of `text` from the prompt's last on, each read alone.
  std::vector<std::vector<float>> RowsAlone(const Tokens& prompt, const Tokens& text) {
    KvSequence kv = Read(prompt);
    Tokens tokens = {prompt.back()};
    tokens.insert(tokens.end(), text.begin(), text.end());
    std::vector<std::vector<float>> rows;
    for (const TokenId& token : tokens) {
      const ForwardRequest request{.tokens = {&token, 1}, .kv = &kv};
      const MatrixView logits = *target.Forward({&request, 1});
      const auto* row = static_cast<const float*>(logits.data);
      rows.emplace_back(row, row + logits.cols);
    }
    return rows;
  }

  FakeCache cache;
  FakeModel target;
};

// The definition: the sum of the log-probabilities of one pass over prompt, choice and end.
double LogprobAlone(ChoiceWorld* world, const Tokens& prompt, const Tokens& choice,
                    const Tokens& end_tokens) {
  const auto rows = world->RowsAlone(prompt, choice);
  double sum = 0.0;
  for (size_t i = 0; i < choice.size(); ++i) sum += LogprobsOf(rows[i], choice[i], 0).logprob;
  if (end_tokens.size() == 1) return sum + LogprobsOf(rows.back(), end_tokens[0], 0).logprob;
  double largest = -INFINITY;
  double ends = 0.0;
  for (const TokenId id : end_tokens) {
    largest = std::max<double>(largest, LogprobsOf(rows.back(), id, 0).logprob);
  }
  for (const TokenId id : end_tokens) {
    ends += std::exp(LogprobsOf(rows.back(), id, 0).logprob - largest);
  }
  return sum + (largest + std::log(ends));
}

std::vector<Tokens> RandomChoices(std::mt19937_64& random) {
  std::set<Tokens> choices;
  const size_t count = 1 + random() % 40;
  const int vocab = 2 + static_cast<int>(random() % 5);  // few tokens: deep trees
  const bool shares_beginning = random() % 2 == 0;
  const Tokens beginning = RandomTokens(random, vocab, static_cast<int>(random() % 9));
  for (int i = 0; i < 100 && choices.size() < count; ++i) {
    Tokens choice = shares_beginning ? beginning : Tokens();
    const Tokens rest = RandomTokens(random, vocab, static_cast<int>(random() % 7));
    choice.insert(choice.end(), rest.begin(), rest.end());
    choices.insert(choice);
  }
  std::vector<Tokens> shuffled(choices.begin(), choices.end());
  std::shuffle(shuffled.begin(), shuffled.end(), random);
  return shuffled;
}

// Random choices, prompts, limits of rows and batches: bits equal those of each text read alone,
// token by token. A part never takes more pages or rows than it says, and frees all pages.
TEST(ChoiceScores, EqualPassesOverEachTextAlone) {
  std::mt19937_64 random(1);
  for (int trial = 0; trial < 150; ++trial) {
    ChoiceWorld world;
    struct Asked {
      Tokens prompt;
      std::vector<Tokens> choices;
      Tokens end_tokens;
      KvSequence kv;
      ChoiceScores scores;
    };
    std::deque<Asked> all;
    for (size_t i = 0; i < 1 + random() % 3; ++i) {
      Tokens prompt = RandomTokens(random, kSmallVocab, 1 + static_cast<int>(random() % 12));
      std::vector<Tokens> choices = RandomChoices(random);
      const Tokens end_tokens = random() % 2 == 0 ? Tokens{6} : Tokens{2, 5, 6};
      KvSequence kv = world.Read(prompt);
      all.push_back({prompt, choices, end_tokens, std::move(kv),
                     ChoiceScores(choices, end_tokens, static_cast<int>(random() % 3) - 1)});
    }
    const int max_rows = 1 + static_cast<int>(random() % 30);
    const auto is_left = [](const Asked& asked) { return !asked.scores.is_complete(); };
    while (std::any_of(all.begin(), all.end(), is_left)) {
      std::vector<ChoiceRequest> requests;
      int64_t num_pages = 0;
      for (Asked& asked : all) {
        if (!is_left(asked)) continue;
        const ChoiceScores::Part part = asked.scores.NextPart(asked.kv, max_rows, 50);
        EXPECT_TRUE(part.count == 1 || (part.num_rows <= max_rows && part.pages <= 50));
        num_pages += part.pages;
        requests.push_back({.scores = &asked.scores,
                            .count = part.count,
                            .last = asked.prompt.back(),
                            .kv = &asked.kv});
      }
      // Leaves only as many pages as the parts say that they need.
      const int num_free = world.cache->num_free_pages();
      KvSequence others = world.cache->NewSequence();
      ASSERT_LE(num_pages, num_free);
      ASSERT_TRUE(others.Extend((num_free - static_cast<int>(num_pages)) * kChoicePageSize).ok());
      world.target.passes().clear();
      const absl::Status status = ScoreChoices(&world.target, requests, max_rows);
      ASSERT_TRUE(status.ok()) << status;
      for (const auto& pass : world.target.passes()) {
        int num_rows = 0;
        for (const FakeModel::Fed& fed : pass) num_rows += static_cast<int>(fed.tokens.size());
        EXPECT_LE(num_rows, max_rows);
      }
      others = KvSequence();
      EXPECT_EQ(world.cache->num_free_pages(), num_free);
    }
    for (Asked& asked : all) {
      const std::vector<double> got = asked.scores.Logprobs();
      ASSERT_EQ(got.size(), asked.choices.size());
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_EQ(got[i], LogprobAlone(&world, asked.prompt, asked.choices[i], asked.end_tokens));
        Tokens output = asked.scores.OutputOf(static_cast<int>(i));
        const auto& rows = asked.scores.RowsOf(static_cast<int>(i));
        for (size_t j = 0; j < rows.size(); ++j) {
          const auto alone = world.RowsAlone(asked.prompt, asked.choices[i]);
          const TokenLogprobs want = LogprobsOf(alone[j], output[j], 1);
          EXPECT_EQ(rows[j].id, output[j]);
          EXPECT_EQ(rows[j].logprob, want.logprob);
          if (!rows[j].top.empty()) {
            EXPECT_EQ(rows[j].top, want.top);
          }
        }
        output.pop_back();
        EXPECT_EQ(output, asked.choices[i]);
      }
    }
  }
}

int PassesFor(const std::vector<Tokens>& choices) {
  ChoiceWorld world;
  const KvSequence kv = world.Read({1, 2, 3});
  ChoiceScores scores(choices, {6}, -1);
  const ChoiceRequest request{
      .scores = &scores, .count = scores.num_choices(), .last = 3, .kv = &kv};
  world.target.passes().clear();
  EXPECT_TRUE(ScoreChoices(&world.target, {&request, 1}, 1000).ok());
  return static_cast<int>(world.target.passes().size());
}

TEST(ChoiceScores, TakeOnePassForAFewLabelsAndOneMoreForEachForkOfManyLongOnes) {
  EXPECT_EQ(PassesFor({{0}, {1}, {2}, {3}}), 1);
  EXPECT_EQ(PassesFor({{0, 1, 1}, {0, 1, 2}, {2, 2}, {}}), 1);
  std::vector<Tokens> long_ones;
  for (TokenId a = 0; a < 6; ++a) {
    for (TokenId b = 0; b < 6; ++b) {
      Tokens choice = {a, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5};
      choice.push_back(b);
      long_ones.push_back(std::move(choice));
    }
  }
  EXPECT_EQ(PassesFor(long_ones), 3);  // the prompt's last token, six stems, 36 ends
}

TEST(ChoiceScores, ReportARowThatIsNotADistribution) {
  ChoiceWorld world(400, {.poisoned = [](absl::Span<const TokenId> context) {
                      return context == absl::Span<const TokenId>({1, 2, 3, 0});
                    }});
  const KvSequence kv = world.Read({1, 2, 3});
  for (const auto& [choices, is_wrong] : std::vector<std::pair<std::vector<Tokens>, bool>>{
           {{{1}, {2, 0}}, false}, {{{1}, {0}}, true}, {{{0, 1}, {2}}, true}}) {
    ChoiceScores scores(choices, {6}, -1);
    const ChoiceRequest request{.scores = &scores, .count = 2, .last = 3, .kv = &kv};
    ASSERT_TRUE(ScoreChoices(&world.target, {&request, 1}, 100).ok());
    EXPECT_EQ(scores.status().ok(), !is_wrong);
    if (is_wrong) {
      EXPECT_THAT(std::string(scores.status().message()), HasSubstr("position 4"));
    }
  }
}

TEST(ChoiceScores, KeepNothingOfAPassThatFails) {
  for (int fail_at = 0; fail_at < 3; ++fail_at) {
    ChoiceWorld world;
    const KvSequence kv = world.Read({1, 2});
    std::vector<Tokens> choices;
    for (TokenId i = 0; i < 7; ++i) choices.push_back({0, 1, 2, 3, 4, 5, i, i, i, i});
    ChoiceScores scores(choices, {6}, -1);
    const ChoiceRequest request{.scores = &scores, .count = 7, .last = 2, .kv = &kv};
    const int num_free = world.cache->num_free_pages();
    world.target.options().fail_at = 1 + fail_at;
    const bool fails = fail_at < 2;
    EXPECT_EQ(ScoreChoices(&world.target, {&request, 1}, 100).ok(), !fails);
    EXPECT_EQ(scores.is_complete(), !fails);
    EXPECT_EQ(world.cache->num_free_pages(), num_free);
  }
}

// ---- The law ----

// All choices of up to two of the tokens 0 and 1, over every prompt of two tokens: the conditional
// law of the outputs of plain decoding that are one of them, whose probabilities are enumerated.
TEST(ChoiceLaw, IsTheTargetsLawGivenThatTheOutputIsAChoice) {
  const std::vector<Tokens> choices = {{}, {0}, {1}, {0, 0}, {0, 1}, {1, 0}, {1, 1}};
  const Tokens end_tokens = {2, 6};
  for (TokenId a = 0; a < kSmallVocab; ++a) {
    for (TokenId b = 0; b < kSmallVocab; ++b) {
      ChoiceWorld world;
      const KvSequence kv = world.Read({a, b});
      ChoiceScores scores(choices, end_tokens, -1);
      const ChoiceRequest request{.scores = &scores, .count = 7, .last = b, .kv = &kv};
      ASSERT_TRUE(ScoreChoices(&world.target, {&request, 1}, 100).ok());
      std::vector<double> law;  // of plain decoding
      for (const Tokens& choice : choices) {
        const auto rows = world.RowsAlone({a, b}, choice);
        double p = 1.0;
        for (size_t i = 0; i <= choice.size(); ++i) {
          Distribution row;
          ASSERT_TRUE(MakeDistribution(rows[i], SamplingParams(), nullptr, &row).ok());
          p *= i < choice.size() ? row.probs[choice[i]] : row.probs[2] + row.probs[6];
        }
        law.push_back(p);
      }
      const double sum = std::accumulate(law.begin(), law.end(), 0.0);
      const auto normalized = NormalizedLogprobs(scores.Logprobs());
      ASSERT_TRUE(normalized.ok());
      for (size_t i = 0; i < choices.size(); ++i) {
        // Each of at most three factors, and three of the sum, has the rounding of an f32 row of
        // seven: 2^-24 for the entry and as much for its normaliser.
        EXPECT_NEAR(std::exp((*normalized)[i]) / (law[i] / sum), 1.0, 12 * 0x1p-23);
      }
    }
  }
}

// The share of [0, 1) that leads to each choice is its probability: with N equally spaced numbers
// it is exact to 1 / N.
TEST(ChoiceLaw, GivesEachChoiceItsShareOfTheUniformNumbers) {
  const std::vector<double> logprobs = {-3.0, -0.5, -INFINITY, -800.0, -2.0, -0.5};
  constexpr int kNumbers = 200'000;
  for (const float temperature : {1.0f, 0.5f, 2.0f, 0.01f, 100.0f}) {
    std::vector<int> counts(logprobs.size());
    for (int i = 0; i < kNumbers; ++i) {
      ++counts[DrawChoice(logprobs, temperature, (i + 0.5) / kNumbers)];
    }
    double sum = 0.0;
    for (const double logprob : logprobs) sum += std::exp(logprob / temperature);
    for (size_t i = 0; i < logprobs.size(); ++i) {
      EXPECT_NEAR(counts[i], kNumbers * std::exp(logprobs[i] / temperature) / sum, 1.0);
    }
  }
}

TEST(ChoiceLaw, TakesTheFirstOfTheLargestAtTemperatureZero) {
  for (const double uniform : {1e-9, 0.5, 1 - 0x1p-53}) {
    EXPECT_EQ(DrawChoice({-2.0, -1.0, -1.0}, 0.0f, uniform), 1);
  }
}

TEST(ChoiceLaw, NeverDrawsAChoiceWithoutProbability) {
  for (const double uniform : {0x1p-53, 0.5, 1 - 0x1p-53}) {
    EXPECT_EQ(DrawChoice({-INFINITY, -1.0, -INFINITY}, 1.0f, uniform), 1);
  }
  EXPECT_FALSE(NormalizedLogprobs({-INFINITY, -INFINITY}).ok());
}

TEST(ChoiceLaw, NormalizesLogarithmsBelowTheRangeOfProbabilities) {
  const auto normalized = NormalizedLogprobs({-2000.0, -2000.0, -INFINITY});
  ASSERT_TRUE(normalized.ok());
  EXPECT_THAT(*normalized, ElementsAre(-std::log(2.0), -std::log(2.0), -INFINITY));
}

TEST(RandomSource, UniformDoublesFillTheUnitInterval) {
  const RandomSource random(3);
  constexpr int kCount = 100'000;
  std::vector<double> numbers;
  for (uint32_t i = 0; i < kCount; ++i) {
    numbers.push_back(random.UniformDouble({.stream = RandomStream::kChoice, .position = i}));
  }
  std::sort(numbers.begin(), numbers.end());
  double distance = 0.0;  // Kolmogorov's
  for (int i = 0; i < kCount; ++i) {
    distance = std::max(distance, std::abs(numbers[i] - (i + 0.5) / kCount));
  }
  EXPECT_LT(distance, 1.95 / std::sqrt(kCount));  // exceeded with probability 0.001
  EXPECT_GT(numbers.front(), 0.0);
  EXPECT_LT(numbers.back(), 1.0);
  EXPECT_EQ(std::adjacent_find(numbers.begin(), numbers.end()), numbers.end());
}

}  // namespace
}  // namespace tandem
