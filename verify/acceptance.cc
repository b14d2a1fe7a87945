#include "verify/acceptance.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "base/status_macros.h"
#include "kernels/row_sums.h"

namespace tandem {
namespace {

// Probability of `token`; 0 for tokens beyond the row.
float ProbabilityOf(const Distribution& distribution, TokenId token) {
  if (distribution.only >= 0) return token == distribution.only ? 1.0f : 0.0f;
  if (token < 0 || token >= static_cast<TokenId>(distribution.probs.size())) return 0.0f;
  return distribution.probs[token];
}

// A slot's pair of rows: max(0, scale * target - draft) as weights over the target's vocabulary.
class Residual {
 public:
  Residual(const Distribution& target, const Distribution& draft, double scale)
      : target_(target), draft_(draft), scale_(scale) {}

  double Mass() const {
    if (target_.only >= 0) return WeightOf(target_.only);
    const std::vector<float>& p = target_.probs;
    const std::vector<float>& q = draft_.probs;
    const size_t common = draft_.only >= 0 ? 0 : std::min(p.size(), q.size());
    double mass = 0.0;
    for (size_t chunk = 0; chunk < p.size(); chunk += kSumChunk) {
      const size_t end = std::min<size_t>(p.size(), chunk + kSumChunk);
      const size_t drafted = std::clamp(common, chunk, end);
      double sums[kSumLanes] = {};
      AddStretch(
          chunk, drafted, [&](size_t v) { return scale_ * p[v] - q[v]; }, sums);
      AddStretch(
          drafted, end, [&](size_t v) { return scale_ * p[v]; }, sums);
      for (int half = kSumLanes / 2; half > 0; half /= 2) {
        for (int lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
      }
      mass += sums[0];
    }
    const double counted_whole =
        draft_.only >= 0 ? scale_ * ProbabilityOf(target_, draft_.only) : 0;
    return counted_whole > 0.0 ? mass - counted_whole + WeightOf(draft_.only) : mass;
  }

  TokenId Draw(const RoundNoise& noise, int slot) const {
    if (target_.only >= 0) return WeightOf(target_.only) > 0.0 ? target_.only : -1;
    const std::vector<float>& p = target_.probs;
    std::vector<float> weights(p.size());
    const size_t common = draft_.only >= 0 ? 0 : std::min(p.size(), draft_.probs.size());
    for (size_t v = 0; v < common; ++v) {
      weights[v] = static_cast<float>(std::max(0.0, scale_ * p[v] - draft_.probs[v]));
    }
    for (size_t v = common; v < p.size(); ++v) weights[v] = static_cast<float>(scale_ * p[v]);
    if (0 <= draft_.only && draft_.only < static_cast<TokenId>(p.size())) {
      weights[draft_.only] = static_cast<float>(WeightOf(draft_.only));
    }
    return noise.draw_residual(weights, slot);
  }

 private:
  // Adds what is positive of weight(v) for v in [begin, end) to the chain of v's lane.
  template <typename Weight>
  static void AddStretch(size_t begin, size_t end, const Weight& weight, double* sums) {
    const auto add = [&](size_t v, size_t lane) { sums[lane] += std::max(0.0, weight(v)); };
    size_t v = begin;
    for (; v < end && v % kSumLanes != 0; ++v) add(v, v % kSumLanes);
    for (; v + kSumLanes <= end; v += kSumLanes) {
      for (size_t lane = 0; lane < kSumLanes; ++lane) add(v + lane, lane);
    }
    for (; v < end; ++v) add(v, v % kSumLanes);
  }

  double WeightOf(TokenId v) const {
    return std::max(0.0, scale_ * ProbabilityOf(target_, v) - ProbabilityOf(draft_, v));
  }

  const Distribution& target_;
  const Distribution& draft_;
  double scale_;
};

// The residual's draw at the slot of a rejection. It has mass but for rounding, where the target's
// own distribution is the limit.
TokenId DrawAfterRejection(const Residual& residual, const Distribution& target, int slot,
                           const RoundNoise& noise) {
  const TokenId token = residual.Draw(noise, slot);
  if (token >= 0) return token;
  return target.only >= 0 ? target.only : noise.draw_residual(target.probs, slot);
}

absl::StatusOr<Verdict> JudgeByExactMatch(absl::Span<const TokenId> tokens, TargetRows target,
                                          const RoundNoise& noise) {
  for (int i = 0;; ++i) {
    ASSIGN_OR_RETURN(const Distribution* p, target(i));
    const TokenId choice = noise.draw_target(*p, i);
    if (i == static_cast<int>(tokens.size()) || choice != tokens[i]) {
      return Verdict{.num_accepted = i, .next = choice};
    }
  }
}

absl::StatusOr<Verdict> JudgeByToken(absl::Span<const TokenId> tokens, TargetRows target,
                                     absl::Span<const Distribution> draft,
                                     const RoundNoise& noise) {
  for (int i = 0;; ++i) {
    ASSIGN_OR_RETURN(const Distribution* p, target(i));
    if (i == static_cast<int>(tokens.size())) {
      return Verdict{.num_accepted = i, .next = noise.draw_target(*p, i)};
    }
    const float ratio = ProbabilityOf(*p, tokens[i]) / ProbabilityOf(draft[i], tokens[i]);
    // Strict, with u inside (0, 1): p = 0 is never accepted, p = q always.
    if (noise.accept_uniform(i) < ratio) continue;
    const Residual residual(*p, draft[i], 1.0);
    return Verdict{.num_accepted = i, .next = DrawAfterRejection(residual, *p, i, noise)};
  }
}

// pi_i = min(1, pi_{i-1} p_i / q_i) is the chance that slot i survives given the draft. Every slot
// is tested, and the last success counts: h_i = S_i / (S_i + 1 - pi_i) with S_i the mass of the
// residual behind slot i, h = pi at the last slot. A failed test is no reason to stop.
absl::StatusOr<Verdict> JudgeByBlock(absl::Span<const TokenId> tokens, TargetRows target,
                                     absl::Span<const Distribution> draft,
                                     const RoundNoise& noise) {
  const int count = static_cast<int>(tokens.size());
  ASSIGN_OR_RETURN(const Distribution* row, target(0));
  const Distribution* kept_row = row;  // the row behind the tokens kept so far
  double survival = 1.0;
  double kept_survival = 1.0;
  int kept = 0;
  for (int i = 0; i < count; ++i) {
    const double p = ProbabilityOf(*row, tokens[i]);
    // Nothing survives behind a token that the target never says: there pi = 0 and S = 0.
    if (p == 0.0) break;
    const double q = ProbabilityOf(draft[i], tokens[i]);
    survival = std::min(1.0, survival * (p / q));
    const double u = noise.accept_uniform(i);
    bool survives = u < survival;
    if (i + 1 < count || survives) {
      ASSIGN_OR_RETURN(row, target(i + 1));
    }
    if (i + 1 < count) {
      const double mass = Residual(*row, draft[i + 1], survival).Mass();
      // u < mass / (mass + 1 - survival) without the division; 0 / 0 accepts.
      survives = survival >= 1.0 || u * (mass + (1.0 - survival)) < mass;
    }
    if (!survives) continue;
    kept = i + 1;
    kept_survival = survival;
    kept_row = row;
  }
  if (kept == count) {
    return Verdict{.num_accepted = count, .next = noise.draw_target(*kept_row, count)};
  }
  const Residual residual(*kept_row, draft[kept], kept_survival);
  return Verdict{.num_accepted = kept,
                 .next = DrawAfterRejection(residual, *kept_row, kept, noise)};
}

}  // namespace

std::string_view NameOf(AcceptanceRule rule) {
  switch (rule) {
    case AcceptanceRule::kExactMatch:
      return "exact_match";
    case AcceptanceRule::kBlock:
      return "block";
    case AcceptanceRule::kToken:
      return "token";
  }
  return "";
}

absl::StatusOr<Verdict> Judge(AcceptanceRule rule, absl::Span<const TokenId> tokens,
                              TargetRows target, absl::Span<const Distribution> draft,
                              const RoundNoise& noise) {
  TANDEM_CHECK(draft.size() >= tokens.size());
  switch (rule) {
    case AcceptanceRule::kExactMatch:
      return JudgeByExactMatch(tokens, target, noise);
    case AcceptanceRule::kBlock:
      return JudgeByBlock(tokens, target, draft, noise);
    case AcceptanceRule::kToken:
      return JudgeByToken(tokens, target, draft, noise);
  }
  TANDEM_CHECK(false);
}

}  // namespace tandem
