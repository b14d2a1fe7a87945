#include "verify/acceptance.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "base/named_values.h"
#include "base/status_macros.h"
#include "kernels/row_sums.h"
#include "tandem/acceptance_rule.h"

namespace tandem {
namespace {

// Returns the probability of `token`; 0 for tokens outside the row.
float ProbabilityOf(const Distribution& distribution, TokenId token) {
  if (distribution.only >= 0) return token == distribution.only ? 1.0f : 0.0f;
  if (token < 0 || token >= static_cast<TokenId>(distribution.probs.size())) return 0.0f;
  return distribution.probs[token];
}

// The residual of a slot: weights max(0, scale * target - draft) over the target's vocabulary.
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
  // Adds max(0, weight(v)) for v in [begin, end) to the partial sum of v's lane.
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

absl::StatusOr<Verdict> JudgeByExactMatch(int num_tokens, Slots& slots) {
  for (int i = 0;; ++i) {
    RETURN_IF_ERROR(slots.Reach(i));
    const TokenId choice = slots.DrawTarget(i);
    if (i == num_tokens || slots.Token(i) != choice) {
      return Verdict{.num_accepted = i, .next = choice};
    }
  }
}

absl::StatusOr<Verdict> JudgeByToken(int num_tokens, Slots& slots) {
  for (int i = 0;; ++i) {
    RETURN_IF_ERROR(slots.Reach(i));
    if (i == num_tokens) return Verdict{.num_accepted = i, .next = slots.DrawTarget(i)};
    const float ratio = slots.TargetOf(i) / slots.DraftOf(i);
    // The comparison is strict and u is in (0, 1): p = 0 is never accepted, p = q always is.
    if (slots.AcceptUniform(i) < ratio) continue;
    return Verdict{.num_accepted = i, .next = slots.DrawResidual(i, 1.0)};
  }
}

// pi_i = min(1, pi_{i-1} p_i / q_i) is the chance that slot i survives given the draft. Slot i
// passes with probability h_i = S_i / (S_i + 1 - pi_i), where S_i is the mass of the residual after
// slot i; the last slot passes with probability pi. The last pass counts, so a failed test does not
// end the loop.
absl::StatusOr<Verdict> JudgeByBlock(int num_tokens, Slots& slots) {
  RETURN_IF_ERROR(slots.Reach(0));
  double survival = 1.0;
  double kept_survival = 1.0;
  int kept = 0;
  for (int i = 0; i < num_tokens; ++i) {
    const double p = slots.TargetOf(i);
    // No slot survives after a token with probability 0 for the target: there pi = 0 and S = 0.
    if (p == 0.0) break;
    const double q = slots.DraftOf(i);
    survival = std::min(1.0, survival * (p / q));
    const double u = slots.AcceptUniform(i);
    bool survives = u < survival;
    if (i + 1 < num_tokens || survives) RETURN_IF_ERROR(slots.Reach(i + 1));
    if (i + 1 < num_tokens) {
      const double mass = slots.ResidualMass(i + 1, survival);
      // u < mass / (mass + 1 - survival) without the division; 0 / 0 accepts.
      survives = survival >= 1.0 || u * (mass + (1.0 - survival)) < mass;
    }
    if (!survives) continue;
    kept = i + 1;
    kept_survival = survival;
  }
  if (kept == num_tokens) return Verdict{.num_accepted = kept, .next = slots.DrawTarget(kept)};
  return Verdict{.num_accepted = kept, .next = slots.DrawResidual(kept, kept_survival)};
}

constexpr NamedValues<AcceptanceRule, 4> kNames = {{{AcceptanceRule::kAuto, "auto"},
                                                    {AcceptanceRule::kExactMatch, "exact_match"},
                                                    {AcceptanceRule::kBlock, "block"},
                                                    {AcceptanceRule::kToken, "token"}}};

}  // namespace

HostSlots::HostSlots(absl::Span<const TokenId> tokens, TargetRows target,
                     absl::Span<const Distribution> draft, const RoundNoise& noise)
    : tokens_(tokens), target_(target), draft_(draft), noise_(noise) {
  TANDEM_CHECK(draft.size() >= tokens.size());
}

absl::Status HostSlots::Reach(int slot) {
  TANDEM_CHECK(slot <= static_cast<int>(rows_.size()));
  if (slot < static_cast<int>(rows_.size())) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Distribution* row, target_(slot));
  rows_.push_back(row);
  return absl::OkStatus();
}

float HostSlots::TargetOf(int slot) { return ProbabilityOf(*rows_[slot], tokens_[slot]); }
float HostSlots::DraftOf(int slot) { return ProbabilityOf(draft_[slot], tokens_[slot]); }
float HostSlots::AcceptUniform(int slot) { return noise_.accept_uniform(slot); }

double HostSlots::ResidualMass(int slot, double scale) {
  return Residual(*rows_[slot], draft_[slot], scale).Mass();
}

TokenId HostSlots::DrawResidual(int slot, double scale) {
  const Distribution& target = *rows_[slot];
  const TokenId token = Residual(target, draft_[slot], scale).Draw(noise_, slot);
  if (token >= 0) return token;
  return target.only >= 0 ? target.only : noise_.draw_residual(target.probs, slot);
}

TokenId HostSlots::DrawTarget(int slot) { return noise_.draw_target(*rows_[slot], slot); }

TokenId HostSlots::DrawFrom(absl::Span<const float> weights, int slot) {
  return noise_.draw_residual(weights, slot);
}

absl::StatusOr<Verdict> Judge(AcceptanceRule rule, int num_tokens, Slots& slots) {
  switch (rule) {
    case AcceptanceRule::kAuto:
      break;
    case AcceptanceRule::kExactMatch:
      return JudgeByExactMatch(num_tokens, slots);
    case AcceptanceRule::kBlock:
      return JudgeByBlock(num_tokens, slots);
    case AcceptanceRule::kToken:
      return JudgeByToken(num_tokens, slots);
  }
  TANDEM_CHECK(false);
}

std::string_view NameOf(AcceptanceRule rule) { return NameIn(kNames, rule); }

absl::StatusOr<AcceptanceRule> ParseAcceptanceRule(std::string_view name) {
  return ValueOf(kNames, "verifier", name);
}

}  // namespace tandem
