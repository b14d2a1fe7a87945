#include "proof/fault_cases.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "model/sampling.h"
#include "proof/proof_world.h"

namespace tandem {
namespace {

using Row = std::vector<double>;

absl::StatusOr<Row> RowAfterTokens(RememberedRows* model, absl::Span<const TokenId> prompt,
                                   absl::Span<const TokenId> output, const SamplingParams& sampling,
                                   size_t vocab) {
  Distribution distribution;
  RETURN_IF_ERROR(MakeDistributionAfter(model, prompt, output, sampling, vocab, &distribution));
  Row row(distribution.probs.begin(), distribution.probs.end());
  row.resize(vocab, 0.0);
  return row;
}

Row ResidualOf(const Row& p, const Row& q, double scale) {
  Row residual(p.size());
  for (size_t v = 0; v < p.size(); ++v) residual[v] = std::max(0.0, scale * p[v] - q[v]);
  return residual;
}
double Sum(const Row& row) { return std::accumulate(row.begin(), row.end(), 0.0); }

double Variation(const Row& a, const Row& b) {
  const double sum_a = Sum(a);
  const double sum_b = Sum(b);
  if (sum_a <= 0.0 || sum_b <= 0.0) return 0.0;
  double distance = 0.0;
  for (size_t v = 0; v < a.size(); ++v) distance += std::abs(a[v] / sum_a - b[v] / sum_b);
  return distance / 2;
}

// Adds the tokens drawn from `residual` in `share` of the cases.
void AddResidual(double share, const Row& residual, Row* law) {
  const double mass = Sum(residual);
  for (size_t v = 0; v < residual.size() && mass > 0.0; ++v) {
    (*law)[v] += share * residual[v] / mass;
  }
}

// The coin that accepts also draws the token: x is drawn if the coin lies in an interval of length
// q(x), with the lowest ids first, and accepted if it is below min(1, p(x) / q(x)).
double EffectOfOneCoin(const Row& p, const Row& q) {
  Row law(p.size());
  double start = 0.0;
  double accepted = 0.0;
  for (size_t x = 0; x < p.size(); ++x) {
    if (q[x] <= 0.0) continue;
    law[x] = std::clamp(std::min(1.0, p[x] / q[x]) - start, 0.0, q[x]);
    accepted += law[x];
    start += q[x];
  }
  AddResidual(1.0 - accepted, ResidualOf(p, q, 1.0), &law);
  return Variation(law, p);
}

// For means over T: Gauss-Laguerre quadrature with three nodes.
constexpr std::pair<double, double> kTimes[] = {
    {0.415775, 0.711093}, {2.294280, 0.278518}, {6.289945, 0.010389}};
constexpr double kNever = 1e300;

// Adds `weight` times the law of the first token to arrive before `end` in a race at these rates
// that reuses the noise E of a draw from q. That draw ended at the time T of its winner, where T is
// standard exponential. So E_v = T q_v + another exponential for every other token, and v starts
// T q_v / rate_v late. (The winner itself is not in this race.) Returns the chance that none
// arrives.
double AddLateRace(const Row& rates, const Row& q, double time, double end, double weight,
                   Row* law) {
  std::vector<std::pair<double, size_t>> starts;
  for (size_t v = 0; v < q.size(); ++v) {
    if (rates[v] > 0.0) starts.emplace_back(time * q[v] / rates[v], v);
  }
  std::sort(starts.begin(), starts.end());
  double going_on = 1.0;  // probability that no token has arrived when the i-th starts
  double rate = 0.0;
  for (size_t i = 0; i < starts.size() && starts[i].first < end; ++i) {
    rate += rates[starts[i].second];
    const double next = i + 1 < starts.size() ? std::min(starts[i + 1].first, end) : end;
    const double nobody = std::exp(-rate * (next - starts[i].first));
    for (size_t j = 0; j <= i; ++j) {
      const size_t v = starts[j].second;
      (*law)[v] += weight * going_on * (1.0 - nobody) * rates[v] / rate;
    }
    going_on *= nobody;
  }
  return going_on;
}

double EffectOfSharedNoise(const Row& p, const Row& q) {
  const Row residual = ResidualOf(p, q, 1.0);
  Row law(p.size(), 0.0);
  for (const auto& [time, weight] : kTimes) AddLateRace(residual, q, time, kNever, weight, &law);
  return Sum(residual) * Variation(law, residual);
}

// Proposes a token only if it has at least half of the draft's mass; otherwise a token is drawn
// from p.
double EffectOfDropping(const Row& p, const Row& q) {
  const size_t x = std::max_element(q.begin(), q.end()) - q.begin();
  if (q[x] < 0.5) return 0.0;
  const double pi = std::min(1.0, p[x] / q[x]);
  Row law(p.size());
  for (size_t v = 0; v < p.size(); ++v) law[v] = (1.0 - q[x]) * p[v];
  AddResidual(q[x] * (1.0 - pi), ResidualOf(p, q, 1.0), &law);
  law[x] += q[x] * pi;
  return Variation(law, p);
}

// The law of the second token, after `first` was kept, under `token`: drawn from q2 with the noise
// that drew `first` from q. In that race all other tokens start late, as for shared noise, and
// `first` arrives at T q / q2 exactly.
double EffectOfSharedSlots(const Row& q, const Row& p2, const Row& q2, size_t first) {
  Row others = q2;
  others[first] = 0.0;
  Row drawn(q.size(), 0.0);
  for (const auto& [time, weight] : kTimes) {
    const double end = q2[first] > 0.0 ? time * q[first] / q2[first] : kNever;
    drawn[first] += weight * AddLateRace(others, q, time, end, weight, &drawn);
  }
  Row law(q.size(), 0.0);
  double accepted = 0.0;
  for (size_t v = 0; v < law.size(); ++v) {
    if (q2[v] > 0.0) law[v] = drawn[v] * std::min(1.0, p2[v] / q2[v]);
    accepted += law[v];
  }
  AddResidual(1.0 - accepted, ResidualOf(p2, q2, 1.0), &law);
  return Variation(law, p2);
}

// The estimated effect of a fault in one place.
struct Effect {
  FaultShows shows;
  double size = 0.0;
  int draft_tokens = LawCase().draft_tokens;  // the draft length that shows it
};

// Effects with a draft of two tokens (docs/verification.md): x, with pi = min(1, p(x) / q(x)), and
// then one from q2, the row after x, or after `mask` unless that is kNoMaskToken.
absl::StatusOr<std::vector<Effect>> EffectsOf(const std::vector<TokenId>& prompt,
                                              const SamplingParams& sampling, size_t vocab,
                                              RememberedRows* target, RememberedRows* draft,
                                              TokenId mask) {
  ASSIGN_OR_RETURN(const Row p, RowAfterTokens(target, prompt, {}, sampling, vocab));
  ASSIGN_OR_RETURN(const Row q, RowAfterTokens(draft, prompt, {}, sampling, vocab));
  double coins = 0.0;     // probability that the coin of slot 0 decides, both outcomes being likely
  double unscaled = 0.0;  // total variation caused by the unscaled residual after x
  double stops = 0.0;     // probability that the first test fails and the second passes
  double shared = 0.0;    // total variation of the second token if both slots share their noise
  for (TokenId x = 0; x < static_cast<TokenId>(q.size()); ++x) {
    if (q[x] < 0.01 || p[x] <= 0.0) continue;
    const double pi = std::min(1.0, p[x] / q[x]);
    coins += q[x] * pi * (1.0 - pi);
    // At pi = 1 the scale is 1, and block's first test passes.
    if (pi == 1.0 && mask == kNoMaskToken) continue;
    const TokenId read = mask == kNoMaskToken ? x : mask;
    ASSIGN_OR_RETURN(const Row p2, RowAfterTokens(target, prompt, {x}, sampling, vocab));
    ASSIGN_OR_RETURN(const Row q2, RowAfterTokens(draft, prompt, {read}, sampling, vocab));
    if (mask != kNoMaskToken) shared += q[x] * pi * EffectOfSharedSlots(q, p2, q2, x);
    if (pi == 1.0) continue;
    const Row residual = ResidualOf(p2, q2, pi);
    const double mass = Sum(residual);
    unscaled += q[x] * mass * Variation(residual, ResidualOf(p2, q2, 1.0));
    const double fails = (1.0 - pi) / (mass + 1.0 - pi);
    double passes = 0.0;
    for (size_t v = 0; v < q2.size(); ++v) {
      if (q2[v] > 0.0) passes += q2[v] * std::min(1.0, pi * p2[v] / q2[v]);
    }
    stops += q[x] * fails * passes;
  }
  // The other effects are total variations in slot 0.
  return std::vector<Effect>{{FaultShows::kWhereCoinsDecide, coins},
                             {FaultShows::kWhereOneCoinDrawsToo, EffectOfOneCoin(p, q)},
                             {FaultShows::kWhereDraftsVary, EffectOfDropping(p, q)},
                             {FaultShows::kWhereSharedNoiseDelays, EffectOfSharedNoise(p, q)},
                             {FaultShows::kWhereResidualsAreScaled, unscaled, 2},
                             {FaultShows::kWhereBlockPassesLater, stops, 2},
                             {FaultShows::kWhereSlotsShareNoise, shared, 2}};
}

// Returns a case that samples from a few tokens that `target` finds likely after the prompt: `few`
// of each class of ids (mod `classes`) among the `looked` most likely. Appends the first of them
// three times, so that lookups find it.
absl::StatusOr<LawCase> AmongFew(const std::vector<TokenId>& prompt, RememberedRows* target,
                                 LawCase there, int few, int classes, int looked) {
  there.prompt = prompt;
  SamplingParams& sampling = there.sampling.params;
  ASSIGN_OR_RETURN(const absl::Span<const float> logits, target->RowAfter(prompt));
  std::vector<int> num_taken(classes);
  for (const auto& [token, logprob] : LogprobsOf(logits, prompt.back(), looked).top) {
    if (num_taken[token % classes]++ < few) sampling.logit_bias.emplace_back(token, 100.0f);
  }
  there.prompt.insert(there.prompt.end(), 3, sampling.logit_bias[0].first);
  return there;
}

std::vector<ProofSampling> Candidates() {
  std::vector<ProofSampling> candidates;
  for (const int top_k : {2, 3, 4, 6}) {
    for (const float temperature : {0.7f, 1.0f, 1.5f, 2.5f}) {
      candidates.push_back({.name = absl::StrCat("T ", temperature, ", top-k ", top_k),
                            .params = {.temperature = temperature, .top_k = top_k}});
    }
  }
  return candidates;
}

// Effects with a drafter whose proposals are certain: the first two tokens that it proposes after
// the prompt should both depend on coins.
absl::StatusOr<std::vector<Effect>> EffectsOfLookup(const std::vector<TokenId>& prompt,
                                                    const SamplingParams& sampling,
                                                    Drafter* drafter, RememberedRows* target) {
  const std::unique_ptr<DraftState> state = drafter->NewState({});
  const std::vector<DraftOption> options = drafter->Options(state.get(), prompt);
  const auto effects = [](double size) {
    return std::vector<Effect>{{FaultShows::kWhereCoinsDecide, size},
                               {FaultShows::kWhereBlockPassesLater, size}};
  };
  if (options.empty()) return effects(0.0);
  Proposal proposal;
  Proposal* to = &proposal;
  const DraftRequest request{.context = prompt,
                             .granted = 2,
                             .source = options[0].source,
                             .sampling = &sampling,
                             .state = state.get()};
  RETURN_IF_ERROR(drafter->Propose({&request, 1}, {&to, 1}));
  double effect = 1.0;
  for (size_t i = 0; i < proposal.tokens.size(); ++i) {
    const absl::Span<const TokenId> before(proposal.tokens.data(), i);
    ASSIGN_OR_RETURN(const Row p,
                     RowAfterTokens(target, prompt, before, sampling, target->vocab_size()));
    effect *= p[proposal.tokens[i]] * (1.0 - p[proposal.tokens[i]]);
  }
  return effects(effect);
}

constexpr size_t kShortestPrompt = 4;

}  // namespace

absl::StatusOr<FaultCases> FindFaultCases(const std::vector<std::vector<TokenId>>& prompts,
                                          RememberedRows* target, RememberedRows* draft,
                                          Drafter* drafter, Instant deadline) {
  const std::vector<ProofSampling> candidates = Candidates();
  FaultCases cases;
  cases.fill({.prompt = prompts[0], .sampling = candidates.back()});
  std::array<double, kNumFaultShows> most;  // of their effects
  most.fill(-1.0);
  const auto case_of = [&](FaultShows shows) -> LawCase& { return cases[static_cast<int>(shows)]; };
  // With sampling among four tokens they repeat, so penalties matter.
  ASSIGN_OR_RETURN(
      case_of(FaultShows::kWhereTokensRepeat),
      AmongFew(prompts[0], target,
               {.sampling = {.name = "T 2 among 4, penalty -1.5",
                             .params = {.temperature = 2.0f,
                                        .frequency_penalty = kPlantedFrequencyPenalty}}},
               4, 1, 4));
  ASSIGN_OR_RETURN(
      case_of(FaultShows::kWhereAConstraintBinds),
      AmongFew(prompts[0], target,
               {.sampling = {.name = "T 2 among 6, constrained",
                             .params = {.temperature = 2.0f,
                                        .constraint = std::make_shared<const ClassConstraint>()}},
                .draft_tokens = 2},
               2, 3, 100));
  std::vector<std::vector<TokenId>> contexts = prompts;
  for (const std::vector<TokenId>& prompt : prompts) {
    for (size_t length = kShortestPrompt; length < prompt.size(); ++length) {
      contexts.emplace_back(prompt.begin(), prompt.begin() + length);
    }
  }
  for (size_t i = 0; i < contexts.size(); ++i) {
    if (i >= prompts.size() && Instant::Now() > deadline) break;
    for (const ProofSampling& sampling : candidates) {
      ASSIGN_OR_RETURN(const std::vector<Effect> effects,
                       draft == nullptr
                           ? EffectsOfLookup(contexts[i], sampling.params, drafter, target)
                           : EffectsOf(contexts[i], sampling.params, target->vocab_size(), target,
                                       draft, drafter->mask_token()));
      for (const Effect& effect : effects) {
        double& best = most[static_cast<int>(effect.shows)];
        if (effect.size <= best) continue;
        best = effect.size;
        case_of(effect.shows) = {
            .prompt = contexts[i], .sampling = sampling, .draft_tokens = effect.draft_tokens};
      }
    }
  }
  return cases;
}

}  // namespace tandem
