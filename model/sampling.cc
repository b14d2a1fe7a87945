#include "model/sampling.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace tandem {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// exp for arguments <= 0, by operations that vectorise: 2^n times a polynomial in the remainder
// |r| <= ln(2) / 2, whose first dropped term r^7 / 5040 is below 2e-7. Zero below -87.3.
inline float ExpOfNonPositive(float x) {
  const float clamped = x < -87.3f ? -87.3f : x;
  const float n = clamped * 1.44269504f - 0.5f;
  const int whole = static_cast<int>(n);  // rounds to nearest: n <= 0 truncates upwards
  const float r = (clamped - static_cast<float>(whole) * 0.693359375f) +
                  static_cast<float>(whole) * 2.12194440e-4f;
  float sum = 1.0f / 720.0f;
  sum = sum * r + 1.0f / 120.0f;
  sum = sum * r + 1.0f / 24.0f;
  sum = sum * r + 1.0f / 6.0f;
  sum = sum * r + 0.5f;
  sum = sum * r + 1.0f;
  sum = sum * r + 1.0f;
  const float scaled = std::bit_cast<float>((whole + 127) << 23) * sum;
  return x < -87.3f ? 0.0f : scaled;
}

// The larger first; of equals the lower id.
struct ByValueThenId {
  const float* values;
  bool operator()(TokenId a, TokenId b) const {
    return values[a] != values[b] ? values[a] > values[b] : a < b;
  }
};

void ApplyPenalties(const SamplingParams& params, const TokenCounts& counts,
                    absl::Span<float> row) {
  for (const auto& [id, count] : counts.counts()) {
    float& logit = row[id];
    logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    if (count.in_output > 0) {
      logit -= params.frequency_penalty * static_cast<float>(count.in_output);
      logit -= params.presence_penalty;
    }
  }
}

// Sets all but the k largest to -inf; of equals at the edge the lowest ids stay.
void KeepTopK(int k, absl::Span<float> row) {
  if (k <= 0 || k >= static_cast<int>(row.size())) return;
  std::vector<TokenId> ids(row.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::nth_element(ids.begin(), ids.begin() + k, ids.end(), ByValueThenId{row.data()});
  for (auto id = ids.begin() + k; id != ids.end(); ++id) row[*id] = -kInfinity;
}

// Softmax in place. The sum runs in increasing id in eight interleaved partial sums: one fixed
// order. REQUIRES: some entry is finite.
void Softmax(absl::Span<float> row) {
  constexpr size_t kLanes = 8;
  float top = -kInfinity;
  for (const float logit : row) top = logit > top ? logit : top;
  for (float& logit : row) logit = ExpOfNonPositive(logit - top);
  double sums[kLanes] = {};
  size_t v = 0;
  for (; v + kLanes <= row.size(); v += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += row[v + lane];
  }
  for (; v < row.size(); ++v) sums[v % kLanes] += row[v];
  double total = 0.0;
  for (const double sum : sums) total += sum;
  const float inverse = static_cast<float>(1.0 / total);
  for (float& weight : row) weight *= inverse;
}

// Zeroes all but the shortest prefix, ordered by (probability descending, id ascending), whose sum
// reaches top_p. Candidates are sorted in growing batches, because the prefix is mostly short.
void KeepTopP(float top_p, absl::Span<float> probs) {
  if (top_p >= 1.0f) return;
  std::vector<TokenId> ids;
  for (TokenId v = 0; v < static_cast<TokenId>(probs.size()); ++v) {
    if (probs[v] > 0.0f) ids.push_back(v);
  }
  const ByValueThenId order{probs.data()};
  double sum = 0.0;
  size_t kept = 0;
  for (size_t sorted = 0; kept < ids.size() && sum < top_p;) {
    const size_t next = std::min(ids.size(), std::max<size_t>(256, 4 * sorted));
    if (next < ids.size()) {
      std::nth_element(ids.begin() + sorted, ids.begin() + next, ids.end(), order);
    }
    std::sort(ids.begin() + sorted, ids.begin() + next, order);
    for (sorted = next; kept < sorted && sum < top_p; ++kept) sum += probs[ids[kept]];
  }
  for (size_t i = kept; i < ids.size(); ++i) probs[ids[i]] = 0.0f;
}

void KeepMinP(float min_p, absl::Span<float> probs) {
  if (min_p <= 0.0f) return;
  const float floor = min_p * *std::max_element(probs.begin(), probs.end());
  for (float& p : probs) {
    if (p < floor) p = 0.0f;
  }
}

void Renormalize(absl::Span<float> probs) {
  double total = 0.0;
  for (const float p : probs) total += p;
  const float inverse = static_cast<float>(1.0 / total);
  for (float& p : probs) p *= inverse;
}

// The `count` best ids of `values`, best first.
std::vector<TokenId> BestIds(absl::Span<const float> values, int count) {
  std::vector<TokenId> ids(values.size());
  std::iota(ids.begin(), ids.end(), 0);
  count = std::min<int>(count, static_cast<int>(ids.size()));
  std::partial_sort(ids.begin(), ids.begin() + count, ids.end(), ByValueThenId{values.data()});
  ids.resize(count);
  return ids;
}

}  // namespace

void TokenCounts::AddPrompt(absl::Span<const TokenId> tokens) {
  for (const TokenId token : tokens) ++counts_[token].in_prompt;
}

void TokenCounts::RemoveOutput(TokenId token) {
  const auto it = counts_.find(token);
  TANDEM_CHECK(it != counts_.end() && it->second.in_output > 0);
  if (--it->second.in_output == 0 && it->second.in_prompt == 0) counts_.erase(it);
}

TokenId ArgMax(absl::Span<const float> values) {
  // Sixteen running maxima and counts of NaN vectorise.
  constexpr size_t kLanes = 16;
  float best[kLanes];
  float poison[kLanes] = {};
  std::fill(best, best + kLanes, -kInfinity);
  size_t v = 0;
  for (; v + kLanes <= values.size(); v += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const float x = values[v + lane];
      best[lane] = x > best[lane] ? x : best[lane];
      poison[lane] += x == x ? 0.0f : 1.0f;
    }
  }
  for (; v < values.size(); ++v) {
    best[0] = values[v] > best[0] ? values[v] : best[0];
    poison[0] += values[v] == values[v] ? 0.0f : 1.0f;
  }
  const float top = *std::max_element(best, best + kLanes);
  if (!std::isfinite(top)) return -1;
  for (const float count : poison) {
    if (count != 0.0f) return -1;
  }
  return static_cast<TokenId>(std::find(values.begin(), values.end(), top) - values.begin());
}

absl::Status MakeDistribution(absl::Span<const float> logits, const SamplingParams& params,
                              const TokenCounts* counts, Distribution* distribution) {
  const TokenId best = ArgMax(logits);
  if (best < 0) {
    return absl::InvalidArgumentError("logits hold a NaN or +inf, or nothing finite");
  }
  const bool edits = params.has_penalties() || !params.logit_bias.empty();
  if (params.is_greedy() && !edits) {
    distribution->only = best;
    distribution->probs.clear();
    return absl::OkStatus();
  }
  std::vector<float>& row = distribution->probs;
  row.assign(logits.begin(), logits.end());
  if (params.has_penalties()) ApplyPenalties(params, *counts, absl::MakeSpan(row));
  for (const auto& [id, bias] : params.logit_bias) row[id] += bias;
  if (params.is_greedy()) {
    distribution->only = ArgMax(row);
    row.clear();
    if (distribution->only < 0) return absl::InvalidArgumentError("penalties leave nothing finite");
    return absl::OkStatus();
  }
  distribution->only = -1;
  const float inverse_temperature = 1.0f / params.temperature;
  for (float& logit : row) logit *= inverse_temperature;
  KeepTopK(params.top_k, absl::MakeSpan(row));
  if (ArgMax(row) < 0) return absl::InvalidArgumentError("logits overflow at this temperature");
  Softmax(absl::MakeSpan(row));
  if (params.top_p < 1.0f || params.min_p > 0.0f) {
    KeepTopP(params.top_p, absl::MakeSpan(row));
    KeepMinP(params.min_p, absl::MakeSpan(row));
    Renormalize(absl::MakeSpan(row));
  }
  return absl::OkStatus();
}

TokenId DrawFromWeights(absl::Span<const float> weights, const RandomSource& random,
                        const RandomPlace& place) {
  constexpr size_t kPerBlock = 4;
  // Bounds are products of two roundings, so that skipping never changes the winner.
  constexpr float kRoundingSlack = 1.000001f;
  TokenId winner = -1;
  float shortest = kInfinity;  // the winner's time so far
  for (size_t v = 0; v < weights.size(); v += kPerBlock) {
    const size_t count = std::min(kPerBlock, weights.size() - v);
    float largest = 0.0f;
    for (size_t i = 0; i < count; ++i) largest = std::max(largest, weights[v + i]);
    // No exponential is below kLeastExponential, so nobody here can win.
    if (!(largest * shortest * kRoundingSlack > RandomSource::kLeastExponential)) continue;
    const auto words = random.Block(place, static_cast<uint32_t>(v / kPerBlock));
    for (size_t i = 0; i < count; ++i) {
      const float weight = weights[v + i];
      if (weight <= 0.0f) continue;
      // The logarithm is wanted only for the few that may win.
      const float bound = weight * shortest * kRoundingSlack;
      if (RandomSource::LowerBoundOfExponential(words[i]) > bound) continue;
      const float time = RandomSource::ToExponential(words[i]) / weight;
      if (time < shortest) {
        shortest = time;
        winner = static_cast<TokenId>(v + i);
      }
    }
  }
  return winner;
}

TokenId Draw(const Distribution& distribution, const RandomSource& random,
             const RandomPlace& place) {
  if (distribution.only >= 0) return distribution.only;
  return DrawFromWeights(distribution.probs, random, place);
}

TokenLogprobs LogprobsOf(absl::Span<const float> logits, TokenId id, int num_top) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - top);
  const double log_normalizer = top + std::log(sum);
  const auto logprob = [&](TokenId v) { return static_cast<float>(logits[v] - log_normalizer); };
  TokenLogprobs result{.id = id, .logprob = logprob(id), .top = {}};
  if (num_top > 0) {
    for (const TokenId v : BestIds(logits, num_top)) result.top.emplace_back(v, logprob(v));
  }
  return result;
}

TokenLogprobs LogprobsOf(const Distribution& distribution, TokenId id, int num_top) {
  if (distribution.only >= 0) {
    TokenLogprobs result{
        .id = id, .logprob = id == distribution.only ? 0.0f : -kInfinity, .top = {}};
    if (num_top > 0) result.top.emplace_back(distribution.only, 0.0f);
    return result;
  }
  const auto logprob = [&](TokenId v) { return std::log(distribution.probs[v]); };
  TokenLogprobs result{.id = id, .logprob = logprob(id), .top = {}};
  if (num_top > 0) {
    for (const TokenId v : BestIds(distribution.probs, num_top)) {
      if (distribution.probs[v] > 0.0f) result.top.emplace_back(v, logprob(v));
    }
  }
  return result;
}

}  // namespace tandem
