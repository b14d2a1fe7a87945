// Enumerates the law of several rounds with adaptive draft lengths through the production judge.
// Within a round the length depends on the tokens drafted so far, or on all rows of a draft in one
// pass; between rounds on all earlier tokens, including rejected ones. A plan that depends on the
// token drawn last must be detected.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/law_kit.h"
#include "tests/round_law.h"
#include "verify/acceptance.h"

namespace tandem {
namespace {

// Arbitrary decisions that depend on every token.
uint64_t Mixed(uint64_t hash, const Tokens& tokens) {
  const auto mix = [&hash](uint64_t value) {  // MurmurHash3's finaliser
    hash = (hash ^ value) * 0xff51afd7ed558ccd;
    hash = (hash ^ hash >> 33) * 0xc4ceb9fe1a85ec53;
    hash ^= hash >> 33;
  };
  mix(tokens.size());
  for (const TokenId token : tokens) mix(static_cast<uint64_t>(token));
  return hash;
}

// A plan's knowledge from all rounds so far, folded into few values so that there are few states.
using Mood = uint64_t;
constexpr Mood kNumMoods = 3;
Mood NextMood(Mood mood, const Tokens& drafted, const Tokens& emitted) {
  return Mixed(Mixed(mood + 77, drafted) * 31, emitted) % kNumMoods;
}

// Decides how many tokens a round drafts.
struct Plan {
  size_t longest = 0;
  uint64_t salt = 0;
  bool looks_ahead = false;  // a mistake: whether a token is kept depends on the token
  // Whether one pass drafts: rows ignore the tokens drafted before them, and the length follows
  // from all rows, those after its end included.
  bool in_one_pass = false;
  size_t length = 0;  // of a draft in one pass

  // Whether one more token is drafted after `prefix`. In one mood nothing is drafted.
  bool GoesOn(Mood mood, const Tokens& prefix) const {
    if (in_one_pass) return prefix.size() < length;
    if (prefix.empty()) return mood != 1;
    return prefix.size() < longest && Mixed(salt * 8 + mood, prefix) % 5 != 0;
  }
  bool Drops(Mood mood, const Tokens& with_token) const {
    return looks_ahead && Mixed(salt * 8 + mood + 4, with_token) % 3 == 0;
  }
  // The plan of a round with these rows.
  Plan For(const RoundWorld& here, Mood mood) const {
    Plan plan = *this;
    Tokens rows;  // all of them, as sixteenths
    for (size_t depth = 0; depth < longest; ++depth) {
      for (const double q : here.q(Tokens(depth, 0))) rows.push_back(static_cast<TokenId>(16 * q));
    }
    plan.length = Mixed(salt * 8 + mood, rows) % (longest + 1);
    return plan;
  }
};

// Adds all drafts of a round that begin with `prefix`.
void AddDrafts(const RoundWorld& world, const Plan& plan, Mood mood, const Path& prefix,
               std::vector<Path>* drafts) {
  if (!plan.GoesOn(mood, prefix.tokens)) return drafts->push_back(prefix);
  for (TokenId v = 0; v < world.vocab; ++v) {
    const double weight = prefix.weight * world.Q(prefix.tokens, v);
    if (weight == 0.0) continue;
    const Path longer = {With(prefix.tokens, v), weight};
    if (plan.Drops(mood, longer.tokens)) {
      drafts->push_back({prefix.tokens, weight});
    } else {
      AddDrafts(world, plan, mood, longer, drafts);
    }
  }
}

// Returns the expected number of accepted tokens by formula. Depth i of a draft is accepted with
// probability
//   token        prod_{j <= i} min(1, p_j / q_j)
//   block        pi_i, averaged over the continuations of the draft
//   exact_match  prod_{j <= i} p_j
// whatever made the draft reach depth i.
double FormulaForDrafts(const RoundWorld& world, AcceptanceRule rule, const Plan& plan, Mood mood,
                        const Tokens& prefix, double weight, double survival) {
  if (!plan.GoesOn(mood, prefix)) return 0.0;
  double sum = 0.0;
  for (TokenId v = 0; v < world.vocab; ++v) {
    const double q = world.Q(prefix, v);
    if (q == 0.0) continue;
    const double p = world.p(prefix)[v];
    double next = survival * (rule == AcceptanceRule::kExactMatch ? p : std::min(1.0, p / q));
    if (rule == AcceptanceRule::kBlock) next = std::min(1.0, survival * p / q);
    sum += weight * q * next +
           FormulaForDrafts(world, rule, plan, mood, With(prefix, v), weight * q, next);
  }
  return sum;
}

struct Outcomes {
  Law law;  // of the tokens that all rounds emit
  double accepted = 0.0;
  double accepted_by_formula = 0.0;
  int num_strange_thresholds = 0;
  size_t num_drafts = 0;
};

// Returns the world after `context`.
RoundWorld Behind(const RoundWorld& world, const Tokens& context) {
  const auto behind = [&context](const RowOf& rows) {
    return [rows, context](Tokens tokens) {
      tokens.insert(tokens.begin(), context.begin(), context.end());
      return rows(tokens);
    };
  };
  return {.vocab = world.vocab,
          .p = behind(world.p),
          .q = behind(world.q),
          .one_hot_as_only = world.one_hot_as_only};
}

Outcomes RunRounds(const RoundWorld& world, AcceptanceRule rule, const Plan& overall,
                   int num_rounds) {
  Outcomes outcomes;
  std::map<std::pair<Tokens, Mood>, double> states = {{{{}, 0}, 1.0}};
  for (int round = 0; round < num_rounds; ++round) {
    std::map<std::pair<Tokens, Mood>, double> next;
    for (const auto& [state, weight] : states) {
      const auto& [context, mood] = state;
      RoundWorld here = Behind(world, context);
      if (overall.in_one_pass) here.q = Marginals(here.q);
      const Plan plan = overall.For(here, mood);
      std::vector<Path> drafts;
      AddDrafts(here, plan, mood, {{}, weight}, &drafts);
      outcomes.num_drafts += drafts.size();
      outcomes.accepted_by_formula += FormulaForDrafts(here, rule, plan, mood, {}, weight, 1.0);
      for (const Path& draft : drafts) {
        RoundEnumerator enumerator(here, rule);
        enumerator.Add(draft);
        outcomes.accepted += enumerator.expected_accepted();
        outcomes.num_strange_thresholds += enumerator.num_strange_thresholds();
        for (const auto& [emitted, probability] : enumerator.law()) {
          Tokens longer = context;
          longer.insert(longer.end(), emitted.begin(), emitted.end());
          next[{longer, NextMood(mood, draft.tokens, emitted)}] += probability;
        }
      }
    }
    states = std::move(next);
  }
  for (const auto& [state, weight] : states) outcomes.law[state.first] += weight;
  return outcomes;
}

struct Case {
  RoundSize size;
  int num_rounds;
  size_t length() const { return num_rounds * (size.k + 1); }
};
constexpr Case kCases[] = {{{4, 4}, 1}, {{2, 6}, 1}, {{3, 3}, 2}, {{4, 2}, 2}, {{2, 2}, 3}};

double Bias(const RoundWorld& world, const Case& c, const Outcomes& outcomes) {
  return TotalVariation(Completed(outcomes.law, world.p, c.length()),
                        PlainLaw(world.p, c.length()));
}

// A world where some draft tokens are looked up and the others drawn.
RoundWorld MixedWorld(uint64_t seed, RoundSize size) {
  RoundWorld world = ExactWorld(seed, size);
  world.one_hot_as_only = true;
  world.q = [q = world.q, vocab = size.vocab](const Tokens& context) {
    const uint64_t choice = Mixed(3, context);
    return choice % 3 == 0 ? OneHot(vocab, static_cast<TokenId>(choice / 3 % vocab)) : q(context);
  };
  return world;
}

enum class Drafts { kDrawn, kMixed, kInOnePass };

TEST(Judge, IsLosslessOverRoundsOfAdaptiveLengths) {
  for (const Case& c : kCases) {
    for (const Drafts drafts : {Drafts::kDrawn, Drafts::kMixed, Drafts::kInOnePass}) {
      double accepted = 0.0;
      size_t num_drafts = 0;
      for (uint64_t seed = 200; seed < 216; seed += 2) {
        const RoundWorld world =
            drafts == Drafts::kMixed ? MixedWorld(seed, c.size) : ExactWorld(seed, c.size);
        for (const AcceptanceRule rule : kAllRules) {
          SCOPED_TRACE(absl::StrCat(c.size.vocab, ",", c.size.k, " rounds ", c.num_rounds,
                                    " drafts ", static_cast<int>(drafts), " seed ", seed, " ",
                                    std::string(NameOf(rule))));
          const Plan plan = {
              .longest = c.size.k, .salt = seed, .in_one_pass = drafts == Drafts::kInOnePass};
          const Outcomes outcomes = RunRounds(world, rule, plan, c.num_rounds);
          EXPECT_EQ(outcomes.num_strange_thresholds, 0);
          EXPECT_LT(Bias(world, c, outcomes), 1e-12);
          EXPECT_NEAR(outcomes.accepted, outcomes.accepted_by_formula, 1e-12 * c.length());
          accepted += outcomes.accepted;
          num_drafts += outcomes.num_drafts;
        }
      }
      EXPECT_GT(accepted, 2.0);
      EXPECT_GT(num_drafts, 100u);
    }
  }
}

// Only exact matching allows a plan to depend on drawn tokens: its output is the target's own.
TEST(PlantedMistakes, LengthsThatDependOnTheTokenDroppedAreSeen) {
  for (const Case& c : kCases) {
    for (const AcceptanceRule rule : kAllRules) {
      SCOPED_TRACE(absl::StrCat(c.size.vocab, ",", c.size.k, " ", std::string(NameOf(rule))));
      double bias = 0.0;
      for (uint64_t seed = 220; seed < 236; seed += 2) {
        const RoundWorld world = ExactWorld(seed, c.size);
        const Plan plan = {.longest = c.size.k, .salt = seed, .looks_ahead = true};
        bias = std::max(bias, Bias(world, c, RunRounds(world, rule, plan, c.num_rounds)));
      }
      if (rule == AcceptanceRule::kExactMatch) {
        EXPECT_LT(bias, 1e-12);
      } else {
        EXPECT_GT(bias, 1e-4);
      }
    }
  }
}

}  // namespace
}  // namespace tandem
