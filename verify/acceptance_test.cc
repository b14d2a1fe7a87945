#include "verify/acceptance.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/judge_rows.h"
#include "tests/law_kit.h"

namespace tandem {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Judges with fixed coins and real draws.
struct FixedNoise {
  float coin = 0.5f;
  RandomSource random{1};
  std::vector<int> rows_asked;

  absl::StatusOr<Verdict> Judge(AcceptanceRule rule, const Tokens& tokens,
                                const std::vector<Distribution>& target,
                                const std::vector<Distribution>& draft, int bad_row = -1) {
    const auto accept = [&](int) { return coin; };
    const auto residual = [&](absl::Span<const float> weights, int slot) {
      return DrawFromWeights(weights, random,
                             {.stream = RandomStream::kResidual, .slot = uint32_t(slot)});
    };
    const auto choose = [&](const Distribution& row, int slot) {
      return Draw(row, random, {.position = uint32_t(slot)});
    };
    const auto rows = [&](int slot) -> absl::StatusOr<const Distribution*> {
      rows_asked.push_back(slot);
      if (slot == bad_row) return absl::InvalidArgumentError(absl::StrCat("row ", slot));
      return &target[slot];
    };
    return JudgeRows(rule, tokens, rows, draft, {accept, residual, choose});
  }
};

// Makes rows as sampling does, with rounding to f32.
std::vector<Distribution> RoughRows(std::mt19937_64& random, int count, int vocab) {
  std::vector<Distribution> rows(count);
  for (Distribution& row : rows) {
    std::vector<float> logits(vocab);
    for (float& logit : logits) logit = std::normal_distribution<float>(0.0f, 3.0f)(random);
    EXPECT_TRUE(MakeDistribution(logits, SamplingParams(), nullptr, &row).ok());
  }
  return rows;
}

TEST(Judge, AcceptsAllTokensIfTargetAndDraftAreEqual) {
  std::mt19937_64 random(1);
  for (int trial = 0; trial < 200; ++trial) {
    const int vocab = 1 + static_cast<int>(random() % 50);
    const std::vector<Distribution> rows = RoughRows(random, 6, vocab);
    Tokens tokens;
    for (int i = 0; i < 5; ++i) {
      tokens.push_back(Draw(rows[i], RandomSource(random()), {}));
    }
    for (const AcceptanceRule rule : {AcceptanceRule::kBlock, AcceptanceRule::kToken}) {
      for (const uint32_t bits : {0u, 0xFFFFFFFFu}) {
        FixedNoise noise{.coin = RandomSource::ToUniform(bits), .rows_asked = {}};
        const auto verdict = noise.Judge(rule, tokens, rows, rows);
        ASSERT_TRUE(verdict.ok());
        EXPECT_EQ(verdict->num_accepted, 5) << NameOf(rule) << " " << bits;
      }
    }
  }
}

// A coin outside of (0, 1) forces an impossible rejection. The residual is empty, so the token is
// drawn from the target's own row.
TEST(Judge, EmitsAPossibleTokenEvenIfTheResidualIsEmpty) {
  std::mt19937_64 random(2);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<Distribution> rows = RoughRows(random, 2, 20);
    std::fill_n(rows[0].probs.begin(), 10, 0.0f);
    const Tokens tokens = {Draw(rows[0], RandomSource(random()), {})};
    for (const AcceptanceRule rule : {AcceptanceRule::kBlock, AcceptanceRule::kToken}) {
      FixedNoise noise{.coin = 2.0f, .random = RandomSource(random()), .rows_asked = {}};
      const auto verdict = noise.Judge(rule, tokens, rows, rows);
      ASSERT_TRUE(verdict.ok());
      EXPECT_EQ(verdict->num_accepted, 0);
      ASSERT_GE(verdict->next, 10);
      ASSERT_LT(verdict->next, 20);
    }
    // The same for a target row with a single token.
    const std::vector<Distribution> only = {{.only = 7, .probs = {}}, {.only = 3, .probs = {}}};
    for (const AcceptanceRule rule : {AcceptanceRule::kBlock, AcceptanceRule::kToken}) {
      FixedNoise noise{.coin = 2.0f, .rows_asked = {}};
      EXPECT_EQ(noise.Judge(rule, {7}, only, only)->next, 7);
    }
  }
}

TEST(Judge, NeverAcceptsForbiddenTokens) {
  const std::vector<Distribution> target(3, {.only = -1, .probs = {0.0f, 0.5f, 0.5f}});
  const std::vector<Distribution> draft(2, {.only = -1, .probs = {0.5f, 0.25f, 0.25f}});
  for (const AcceptanceRule rule : kAllRules) {
    for (const Tokens& tokens : {Tokens{0, 1}, Tokens{1, 0}}) {
      for (int seed = 0; seed < 50; ++seed) {
        FixedNoise noise{
            .coin = RandomSource::ToUniform(0), .random = RandomSource(seed), .rows_asked = {}};
        const auto verdict = noise.Judge(rule, tokens, target, draft);
        ASSERT_TRUE(verdict.ok());
        EXPECT_LE(verdict->num_accepted, tokens[0] == 0 ? 0 : 1) << NameOf(rule);
        EXPECT_NE(verdict->next, 0) << NameOf(rule);
      }
    }
  }
}

// The comparison is strict: at u = p / q, which is exact in f32 here, the token is rejected.
TEST(Judge, RejectsAtTheThresholdItself) {
  const std::vector<Distribution> target(2, {.only = -1, .probs = {0.25f, 0.75f}});
  const std::vector<Distribution> draft(1, {.only = -1, .probs = {0.5f, 0.5f}});
  for (const AcceptanceRule rule : {AcceptanceRule::kBlock, AcceptanceRule::kToken}) {
    FixedNoise noise{.coin = 0.5f, .rows_asked = {}};
    EXPECT_EQ(noise.Judge(rule, {0}, target, draft)->num_accepted, 0);
    noise.coin = std::nextafter(0.5f, 0.0f);
    EXPECT_EQ(noise.Judge(rule, {0}, target, draft)->num_accepted, 1);
  }
}

TEST(Judge, LeavesItsInputsUnchanged) {
  std::mt19937_64 random(3);
  const std::vector<Distribution> target = RoughRows(random, 5, 30);
  const std::vector<Distribution> draft = RoughRows(random, 4, 20);
  const auto same = [](const std::vector<Distribution>& a, const std::vector<Distribution>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
      return x.only == y.only && x.probs == y.probs;
    });
  };
  for (const AcceptanceRule rule : kAllRules) {
    for (const float coin : {0.01f, 0.5f, 0.99f}) {
      std::vector<Distribution> target_copy = target;
      std::vector<Distribution> draft_copy = draft;
      FixedNoise noise{.coin = coin, .rows_asked = {}};
      ASSERT_TRUE(noise.Judge(rule, {1, 2, 3, 4}, target_copy, draft_copy).ok());
      EXPECT_TRUE(same(target, target_copy) && same(draft, draft_copy));
    }
  }
}

// At temperature 0 all rules agree, whatever the coins and the source of the draft.
TEST(Judge, MatchesTheArgMaxAtTemperatureZero) {
  const std::vector<Distribution> target = {
      {.only = 1, .probs = {}}, {.only = 2, .probs = {}}, {.only = 0, .probs = {}}};
  for (TokenId first = 0; first < 3; ++first) {
    for (TokenId second = 0; second < 3; ++second) {
      const int expected = first != 1 ? 0 : second != 2 ? 1 : 2;
      const std::vector<Distribution> greedy = {{.only = first, .probs = {}},
                                                {.only = second, .probs = {}}};
      const std::vector<Distribution> sampled(2, {.only = -1, .probs = {0.25f, 0.25f, 0.5f}});
      for (const AcceptanceRule rule : kAllRules) {
        for (const auto* draft : {&greedy, &sampled}) {
          for (const uint32_t bits : {0u, 0x80000000u, 0xFFFFFFFFu}) {
            FixedNoise noise{.coin = RandomSource::ToUniform(bits), .rows_asked = {}};
            const auto verdict = noise.Judge(rule, {first, second}, target, *draft);
            ASSERT_TRUE(verdict.ok());
            EXPECT_EQ(verdict->num_accepted, expected) << NameOf(rule);
            EXPECT_EQ(verdict->next, target[expected].only) << NameOf(rule);
          }
        }
      }
    }
  }
}

TEST(Judge, ReadsRowsAfterTheRejectionOnlyIfTheRuleMust) {
  const std::vector<Distribution> target(4, {.only = -1, .probs = {0.1f, 0.9f}});
  const std::vector<Distribution> draft(3, {.only = -1, .probs = {0.5f, 0.5f}});
  const auto rows_of = [&](AcceptanceRule rule) {
    FixedNoise noise{.coin = 0.5f, .rows_asked = {}};
    EXPECT_TRUE(noise.Judge(rule, {1, 0, 1}, target, draft).ok());
    return noise.rows_asked;
  };
  EXPECT_THAT(rows_of(AcceptanceRule::kToken), ElementsAre(0, 1));
  EXPECT_THAT(rows_of(AcceptanceRule::kExactMatch), ElementsAre(0, 1));
  EXPECT_THAT(rows_of(AcceptanceRule::kBlock), ElementsAre(0, 1, 2));  // not the last row
}

TEST(Judge, ReadsNoRowAfterAForbiddenToken) {
  const std::vector<Distribution> target(4, {.only = -1, .probs = {0.0f, 1.0f}});
  const std::vector<Distribution> draft(3, {.only = -1, .probs = {0.5f, 0.5f}});
  for (const AcceptanceRule rule : kAllRules) {
    FixedNoise noise{.coin = 0.5f, .rows_asked = {}};
    const auto verdict = noise.Judge(rule, {1, 0, 1}, target, draft);
    EXPECT_EQ(verdict->num_accepted, 1) << NameOf(rule);
    EXPECT_EQ(verdict->next, 1) << NameOf(rule);
    EXPECT_THAT(noise.rows_asked, ElementsAre(0, 1)) << NameOf(rule);
  }
}

TEST(Judge, ReturnsTheErrorOfAnInvalidRow) {
  const std::vector<Distribution> target(4, {.only = -1, .probs = {0.1f, 0.9f}});
  const std::vector<Distribution> draft(3, {.only = -1, .probs = {0.5f, 0.5f}});
  for (const AcceptanceRule rule : kAllRules) {
    for (int bad_row = 0; bad_row < 4; ++bad_row) {
      FixedNoise noise{.coin = 0.5f, .rows_asked = {}};
      const auto verdict = noise.Judge(rule, {1, 0, 1}, target, draft, bad_row);
      const bool looks_there = bad_row <= (rule == AcceptanceRule::kBlock ? 2 : 1);
      EXPECT_EQ(verdict.ok(), !looks_there) << NameOf(rule) << " " << bad_row;
      if (!verdict.ok()) {
        EXPECT_THAT(std::string(verdict.status().message()),
                    HasSubstr(absl::StrCat("row ", bad_row)));
      }
    }
  }
}

TEST(NameOf, NamesEveryRule) {
  std::set<std::string_view> names;
  for (const AcceptanceRule rule : kAllRules) names.insert(NameOf(rule));
  EXPECT_EQ(names, (std::set<std::string_view>{"exact_match", "block", "token"}));
}

}  // namespace
}  // namespace tandem
