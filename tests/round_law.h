// One round of speculation, enumerated completely through a judge: each drafted path, each region
// of the coins and each outcome of the draws, with its probability.
#ifndef TANDEM_TESTS_ROUND_LAW_H_
#define TANDEM_TESTS_ROUND_LAW_H_

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "tests/judge_rows.h"
#include "tests/law_kit.h"
#include "verify/acceptance.h"

namespace tandem {

inline constexpr float kMinUniform = 0x1p-24f;
inline constexpr float kLargestUniform = 1.0f - 0x1p-24f;

inline Distribution ToDistribution(const Row& row, bool one_hot_as_only = false) {
  if (one_hot_as_only) {
    const auto it = std::find(row.begin(), row.end(), 1.0);
    if (it != row.end()) return {.only = static_cast<TokenId>(it - row.begin()), .probs = {}};
  }
  return {.only = -1, .probs = {row.begin(), row.end()}};
}
inline Row ToRow(const Distribution& distribution, int vocab) {
  Row row(vocab, 0.0);
  if (distribution.only >= 0) {
    row[distribution.only] = 1.0;
  } else {
    std::copy(distribution.probs.begin(), distribution.probs.end(), row.begin());
  }
  return row;
}
inline Row Normalized(Row weights) {
  double sum = 0.0;
  for (const double w : weights) sum += w;
  for (double& w : weights) w /= sum;
  return weights;
}
inline Row OneHot(int vocab, TokenId token) {
  Row row(vocab, 0.0);
  row[token] = 1.0;
  return row;
}
inline TokenId ArgMaxOf(const Row& row) {
  return static_cast<TokenId>(std::max_element(row.begin(), row.end()) - row.begin());
}

// ---- One round, enumerated ----

// Judge, or a faulty replacement.
using EnumeratedJudge =
    std::function<Verdict(AcceptanceRule, const Tokens&, const std::vector<Distribution>& target,
                          const std::vector<Distribution>& draft, const RoundNoise&)>;

inline Verdict Production(AcceptanceRule rule, const Tokens& tokens,
                          const std::vector<Distribution>& target,
                          const std::vector<Distribution>& draft, const RoundNoise& noise) {
  const auto rows = [&](int slot) -> absl::StatusOr<const Distribution*> { return &target[slot]; };
  const auto verdict = JudgeRows(rule, tokens, rows, draft, noise);
  TANDEM_CHECK(verdict.ok());
  return *verdict;
}

// A judge's decision for given coins: how many tokens it kept, and the row that it drew the next
// token from.
struct Outcome {
  int num_accepted = 0;
  Row next;
};

// The coin value at which a slot stops accepting.
struct Threshold {
  double value = 0.0;
  float accepts = 0.0f;  // a coin that accepts, if value > 0
  float rejects = 1.0f;  // a coin that rejects, if value < 1
};

struct Path {
  Tokens tokens;
  double weight = 1.0;
};

// The target and the draft of a round. The draft's rows are those that it records.
struct RoundWorld {
  int vocab = 0;
  RowOf p;
  RowOf q;
  bool one_hot_as_only = false;

  std::vector<Distribution> TargetRows(const Tokens& x) const {
    std::vector<Distribution> rows;
    for (size_t i = 0; i <= x.size(); ++i) rows.push_back(ToDistribution(p(Prefix(x, i))));
    return rows;
  }
  std::vector<Distribution> DraftRows(const Tokens& x) const {
    std::vector<Distribution> rows;
    for (size_t i = 0; i < x.size(); ++i) {
      rows.push_back(ToDistribution(q(Prefix(x, i)), one_hot_as_only));
    }
    return rows;
  }
  double Q(const Tokens& context, TokenId v) const {
    const Row row = q(context);
    return v < static_cast<TokenId>(row.size()) ? row[v] : 0.0;
  }
  double Ratio(const Tokens& x, size_t i) const {
    const Tokens context = Prefix(x, i);
    return p(context)[x[i]] / Q(context, x[i]);
  }
  double ResidualMass(const Tokens& context, double scale) const {
    const Row row = p(context);
    double mass = 0.0;
    for (TokenId v = 0; v < vocab; ++v) mass += std::max(0.0, scale * row[v] - Q(context, v));
    return mass;
  }
  // pi_1..pi_k of the block rule.
  Row Survivals(const Tokens& x) const {
    Row survivals;
    double survival = 1.0;
    for (size_t i = 0; i < x.size(); ++i) {
      survivals.push_back(survival = std::min(1.0, survival * Ratio(x, i)));
    }
    return survivals;
  }
  // Returns the thresholds by the formulas of docs/verification.md.
  Row Thresholds(AcceptanceRule rule, const Tokens& x) const {
    if (rule == AcceptanceRule::kExactMatch) return {};
    Row thresholds = Survivals(x);
    for (size_t i = 0; i < x.size(); ++i) {
      if (rule == AcceptanceRule::kToken) {
        thresholds[i] = std::min(1.0, Ratio(x, i));
      } else if (i + 1 < x.size()) {
        const double mass = ResidualMass(Prefix(x, i + 1), thresholds[i]);
        const double sum = mass + 1.0 - thresholds[i];
        thresholds[i] = sum > 0.0 ? mass / sum : 1.0;
      }
    }
    return thresholds;
  }
};

struct RoundSize {
  int vocab;
  size_t k;  // the longest draft
};

// Draft rows of powers of two and target rows of short fractions: products of up to four ratios of
// 6 bits, or six of 4 bits, fit the 24 bits of f32, so only the last normaliser is rounded.
inline RoundWorld ExactWorld(uint64_t seed, RoundSize size) {
  const int denominator = size.k > 4 ? 16 : 64;
  return {
      .vocab = size.vocab,
      .p = RandomTable(seed, [=](auto& r) { return RandomRow(r, size.vocab, denominator, 0.2); }),
      .q = RandomTable(seed + 1, [=](auto& r) { return RandomPowersOfTwo(r, size.vocab); })};
}

// Returns all paths of `length` drafted tokens.
inline std::vector<Path> DraftedPaths(const RowOf& q, size_t length) {
  std::vector<Path> paths;
  for (const auto& [tokens, weight] : PlainLaw(q, length)) paths.push_back({tokens, weight});
  return paths;
}

class RoundEnumerator {
 public:
  // Changes an outcome after the judgement.
  using Afterwards = std::function<Outcome(const Tokens& x, Outcome outcome)>;

  RoundEnumerator(const RoundWorld& world, AcceptanceRule rule, EnumeratedJudge judge = Production,
                  Afterwards afterwards = nullptr)
      : world_(world), rule_(rule), judge_(std::move(judge)), afterwards_(std::move(afterwards)) {}

  void Add(const Path& path) {
    target_ = world_.TargetRows(path.tokens);
    draft_ = world_.DraftRows(path.tokens);
    if (rule_ == AcceptanceRule::kExactMatch) {
      AddChoices(path);
    } else {
      AddCoins(path);
    }
  }
  void AddAll(const std::vector<Path>& paths) {
    for (const Path& path : paths) Add(path);
  }

  const Law& law() const { return law_; }
  double expected_accepted() const { return expected_accepted_; }
  // Number of thresholds that differ from the formulas.
  int num_strange_thresholds() const { return num_strange_thresholds_; }

 private:
  Outcome Run(const Tokens& x, const std::vector<float>& coins) const {
    Outcome outcome;
    const auto coin = [&](int slot) { return coins[slot]; };
    const auto residual = [&](absl::Span<const float> weights, int) -> TokenId {
      const auto it = std::find_if(weights.begin(), weights.end(), [](float w) { return w > 0; });
      if (it == weights.end()) return -1;
      outcome.next = Normalized({weights.begin(), weights.end()});
      return static_cast<TokenId>(it - weights.begin());
    };
    const auto choose = [&](const Distribution& row, int) -> TokenId {
      outcome.next = ToRow(row, world_.vocab);
      return ArgMaxOf(outcome.next);
    };
    const Verdict verdict = judge_(rule_, x, target_, draft_, {coin, residual, choose});
    outcome.num_accepted = verdict.num_accepted;
    if (outcome.next.empty()) outcome.next = OneHot(world_.vocab, verdict.next);
    return outcome;
  }

  // Bisects the judge's own threshold down to neighbouring floats. If the formula's value lies
  // between them, it is used, so that the law is exact and not rounded to f32.
  Threshold FindThreshold(const Tokens& x, size_t slot, double formula) {
    std::vector<float> coins(x.size(), kLargestUniform);
    std::fill_n(coins.begin(), slot, kMinUniform);
    const auto accepts = [&](float u) {
      coins[slot] = u;
      return Run(x, coins).num_accepted > static_cast<int>(slot);
    };
    if (accepts(kLargestUniform)) {
      // The effect of this coin is hidden if a later one always accepts.
      num_strange_thresholds_ +=
          formula < kLargestUniform && Run(x, coins).num_accepted == static_cast<int>(slot) + 1;
      return {1.0, kLargestUniform, 1.0f};
    }
    if (!accepts(kMinUniform)) return {formula < kMinUniform ? formula : 0.0, 0.0f, kMinUniform};
    float low = kMinUniform;
    float high = kLargestUniform;
    while (std::nextafter(low, high) != high) {
      float middle = low < 0.5f * high ? std::sqrt(low) * std::sqrt(high) : 0.5f * (low + high);
      middle = std::clamp(middle, std::nextafter(low, high), std::nextafter(high, low));
      (accepts(middle) ? low : high) = middle;
    }
    // A quotient rounded to f32 may be one float off.
    const bool as_formula =
        std::nextafter(low, 0.0f) <= formula && formula <= std::nextafter(high, 2.0f);
    num_strange_thresholds_ += !as_formula;
    return {as_formula ? formula : 0.5 * (double{low} + high), low, high};
  }

  void AddCoins(const Path& path) {
    const Tokens& x = path.tokens;
    const Row formulas = world_.Thresholds(rule_, x);
    std::vector<Threshold> thresholds;
    for (size_t i = 0; i < x.size(); ++i) thresholds.push_back(FindThreshold(x, i, formulas[i]));
    for (size_t region = 0; region < size_t{1} << x.size(); ++region) {
      double weight = path.weight;
      std::vector<float> coins;
      for (size_t i = 0; i < x.size(); ++i) {
        const bool accepts = (region >> i) & 1;
        weight *= accepts ? thresholds[i].value : 1.0 - thresholds[i].value;
        coins.push_back(accepts ? thresholds[i].accepts : thresholds[i].rejects);
      }
      if (weight > 0.0) Emit(x, Run(x, coins), weight);
    }
  }

  // Enumerates every sequence of choices that the target could make.
  void AddChoices(const Path& path) {
    for (const auto& [choices, weight] : Completed(
             {{{}, path.weight}},
             [&](const Tokens& chosen) { return ToRow(target_[chosen.size()], world_.vocab); },
             path.tokens.size() + 1)) {
      const auto coin = [](int) { return 0.5f; };
      const auto residual = [](absl::Span<const float>, int) -> TokenId { return -1; };
      const auto choose = [&choices = choices](const Distribution&, int slot) {
        return choices[slot];
      };
      const Verdict verdict = judge_(rule_, path.tokens, target_, draft_, {coin, residual, choose});
      Emit(path.tokens, {verdict.num_accepted, OneHot(world_.vocab, verdict.next)}, weight);
    }
  }

  void Emit(const Tokens& x, Outcome outcome, double weight) {
    if (afterwards_) outcome = afterwards_(x, std::move(outcome));
    expected_accepted_ += weight * outcome.num_accepted;
    for (TokenId v = 0; v < world_.vocab; ++v) {
      if (outcome.next[v] > 0.0) {
        law_[With(Prefix(x, outcome.num_accepted), v)] += weight * outcome.next[v];
      }
    }
  }

  const RoundWorld& world_;
  AcceptanceRule rule_;
  EnumeratedJudge judge_;
  Afterwards afterwards_;
  std::vector<Distribution> target_;
  std::vector<Distribution> draft_;
  Law law_;
  double expected_accepted_ = 0.0;
  int num_strange_thresholds_ = 0;
};

// Returns the total variation distance between the law of a round's tokens, completed by the
// target, and the target's own law.
inline double Bias(const RoundWorld& world, const RoundEnumerator& round, size_t k) {
  return TotalVariation(Completed(round.law(), world.p, k + 1), PlainLaw(world.p, k + 1));
}

// sum over i and prefixes x_1..x_i of prod f(p_j, q_j).
inline double SumOverPrefixes(const RoundWorld& world, const Tokens& prefix, size_t k,
                              double product, const std::function<double(double, double)>& factor) {
  if (prefix.size() == k) return 0.0;
  double sum = 0.0;
  for (TokenId v = 0; v < world.vocab; ++v) {
    const double next = product * factor(world.p(prefix)[v], world.Q(prefix, v));
    if (next > 0.0) sum += next + SumOverPrefixes(world, With(prefix, v), k, next, factor);
  }
  return sum;
}

// Returns the expected number of accepted tokens by the formulas of docs/verification.md.
inline double FormulaForAccepted(const RoundWorld& world, AcceptanceRule rule, size_t k) {
  if (rule == AcceptanceRule::kToken) {
    return SumOverPrefixes(world, {}, k, 1.0, [](double p, double q) { return std::min(p, q); });
  }
  if (rule == AcceptanceRule::kExactMatch) {
    return SumOverPrefixes(world, {}, k, 1.0, [](double p, double q) { return p * q; });
  }
  double sum = 0.0;
  for (const Path& path : DraftedPaths(world.q, k)) {
    for (const double survival : world.Survivals(path.tokens)) sum += path.weight * survival;
  }
  return sum;
}

// Returns the upper bound for every lossless rule: sum over i and prefixes of min(P(prefix),
// Q(prefix)).
inline double BoundForAccepted(const RoundWorld& world, size_t k) {
  double sum = 0.0;
  for (size_t i = 1; i <= k; ++i) {
    const Law p = PlainLaw(world.p, i);
    for (const auto& [tokens, weight] : PlainLaw(world.q, i)) {
      const auto it = p.find(tokens);
      if (it != p.end()) sum += std::min(weight, it->second);
    }
  }
  return sum;
}

}  // namespace tandem

#endif  // TANDEM_TESTS_ROUND_LAW_H_
