#include "model/sampling.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "kernels/row_math.h"
#include "kernels/row_sums.h"
#include "tandem/field_error.h"

namespace tandem {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr char kNothingLeft[] = "penalties, biases and min_tokens leave no finite logit";

// Orders by descending value, then by ascending id.
struct ByValueThenId {
  const float* values;
  bool operator()(TokenId a, TokenId b) const {
    return values[a] != values[b] ? values[a] > values[b] : a < b;
  }
};

void ApplyPenalties(const SamplingParams& params, const TokenHistory& history,
                    absl::Span<float> row) {
  for (const auto& [id, count] : history.counts()) {
    if (static_cast<size_t>(id) >= row.size()) continue;
    float& logit = row[id];
    logit = logit > 0 ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    if (count.in_output > 0) {
      logit -= params.frequency_penalty * static_cast<float>(count.in_output);
      logit -= params.presence_penalty;
    }
  }
}

bool Has(absl::Span<const uint32_t> mask, TokenId id) {
  const auto word = static_cast<size_t>(id) / 32;
  return word < mask.size() && (mask[word] >> (id % 32) & 1) != 0;
}

// Sets all tokens that are not allowed to -inf. With `masks_endings`, allowed ending tokens get
// -inf too if other tokens are allowed.
absl::Status KeepAllowed(absl::Span<const uint32_t> allowed, bool masks_endings,
                         const SamplingParams& params, absl::Span<float> row) {
  absl::Span<const uint32_t> mask = allowed;
  std::vector<uint32_t> without_endings;
  if (masks_endings) {
    without_endings.assign(allowed.begin(), allowed.end());
    for (const TokenId id : params.ending_tokens) {
      if (Has(mask, id)) without_endings[id / 32] &= ~(uint32_t{1} << (id % 32));
    }
    if (absl::c_any_of(without_endings, [](uint32_t word) { return word != 0; })) {
      mask = without_endings;
    }
  }
  bool is_left = false;
  for (size_t first = 0; first < row.size(); first += 32) {
    const uint32_t word = first / 32 < mask.size() ? mask[first / 32] : 0;
    const absl::Span<float> part = row.subspan(first, 32);
    if (word == 0) {
      std::fill(part.begin(), part.end(), -kInfinity);
      continue;
    }
    for (size_t i = 0; i < part.size(); ++i) {
      if ((word >> i & 1) == 0) part[i] = -kInfinity;
      is_left = is_left || part[i] != -kInfinity;
    }
  }
  if (is_left) return absl::OkStatus();
  return absl::InvalidArgumentError("the constraint excludes every token with a finite logit");
}

// Returns the ids of the k largest values, unordered. Among equal values the lowest ids win.
std::vector<TokenId> LargestIds(int k, absl::Span<const float> row) {
  const ByValueThenId before{row.data()};
  std::vector<TokenId> ids;
  // A heap of the best ids so far with the worst on top takes one comparison for nearly every
  // token. Selecting among all ids takes 10 times as long (8 of 4096).
  constexpr int kMaxHeapSize = 256;
  if (k <= kMaxHeapSize) {
    for (TokenId v = 0; v < k; ++v) ids.push_back(v);
    std::make_heap(ids.begin(), ids.end(), before);
    for (TokenId v = k; v < static_cast<TokenId>(row.size()); ++v) {
      if (row[v] <= row[ids.front()]) continue;
      std::pop_heap(ids.begin(), ids.end(), before);
      ids.back() = v;
      std::push_heap(ids.begin(), ids.end(), before);
    }
    return ids;
  }
  ids.resize(row.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::nth_element(ids.begin(), ids.begin() + k, ids.end(), before);
  ids.resize(k);
  return ids;
}

// Sets all but the k largest to -inf. Among equal values at the edge the lowest ids stay.
void KeepTopK(int k, absl::Span<float> row) {
  if (k <= 0 || k >= static_cast<int>(row.size())) return;
  std::vector<std::pair<TokenId, float>> kept;
  for (const TokenId v : LargestIds(k, row)) kept.emplace_back(v, row[v]);
  std::fill(row.begin(), row.end(), -kInfinity);
  for (const auto& [v, logit] : kept) row[v] = logit;
}

// The end of the shortest prefix of probabilities, ordered by (value descending, id ascending),
// whose sum reaches `enough` units. Larger values stay, and so do the first `num_equal` equal ones.
struct TopPCut {
  uint32_t key = 0;  // the value's bits, which have the same order as the values
  uint64_t num_equal = 0;
};

// Finds the cut digit by digit of the key. The sums are integers, so their order does not matter.
// Sorting takes 30 times as long for even probabilities. Returns nullopt if the whole row does not
// reach `enough`.
std::optional<TopPCut> FindTopPCut(uint64_t enough, absl::Span<const float> probs) {
  constexpr int kDigitBits[] = {11, 11, 10};
  std::vector<uint64_t> sums;
  uint32_t key = 0;  // its digits found so far
  uint64_t above = 0;
  int shift = 32;
  for (const int bits : kDigitBits) {
    const int above_digit = shift;
    shift -= bits;
    const uint32_t num_digits = 1u << bits;
    sums.assign(num_digits, 0);
    for (const float p : probs) {
      const uint64_t at = std::bit_cast<uint32_t>(p);
      if (at >> above_digit == key) sums[at >> shift & (num_digits - 1)] += InUnits(p);
    }
    uint32_t digit = num_digits;
    while (digit > 0 && above + sums[digit - 1] < enough) above += sums[--digit];
    if (digit == 0) return std::nullopt;
    key = key << bits | (digit - 1);
  }
  const uint64_t units = InUnits(std::bit_cast<float>(key));
  return TopPCut{key, (enough - above + units - 1) / units};
}

// Sets all probabilities after that prefix to 0.
void KeepTopP(float top_p, absl::Span<float> probs) {
  if (top_p >= 1.0f) return;
  std::optional<TopPCut> cut = FindTopPCut(UnitsToReach(top_p), probs);
  if (!cut.has_value()) return;
  for (float& p : probs) {
    const uint32_t key = std::bit_cast<uint32_t>(p);
    if (key > cut->key) continue;
    if (key == cut->key && cut->num_equal > 0) {
      --cut->num_equal;
    } else {
      p = 0.0f;
    }
  }
}

void KeepMinP(float min_p, absl::Span<float> probs) {
  if (min_p <= 0.0f) return;
  const float floor = min_p * *std::max_element(probs.begin(), probs.end());
  for (float& p : probs) {
    if (p < floor) p = 0.0f;
  }
}

void Renormalize(absl::Span<float> probs) {
  uint64_t total = 0;
  for (const float p : probs) total += InUnits(p);
  const float inverse = InverseOfUnits(total);
  for (float& p : probs) p *= inverse;
}

// Returns the ids of the `count` largest values, largest first; none if `count` is not positive.
std::vector<TokenId> BestIds(absl::Span<const float> values, int count) {
  if (count <= 0) return {};
  std::vector<TokenId> ids =
      LargestIds(std::min<int>(count, static_cast<int>(values.size())), values);
  absl::c_stable_sort(ids, ByValueThenId{values.data()});
  return ids;
}

}  // namespace

absl::Status SamplingParams::Validate(int vocab_size) const {
  absl::Status status;
  VisitSamplingParams([&](const Parameter& parameter, auto member, const Limits& limits) {
    status.Update(CheckWithin(parameter.name, this->*member, limits));
  });
  RETURN_IF_ERROR(status);
  for (const auto& [id, bias] : logit_bias) {
    if (id < 0 || id >= vocab_size) {
      return FieldError("logit_bias",
                        absl::StrCat("token ", id, " is not in the vocabulary of ", vocab_size));
    }
    if (Limits{.low = -100, .high = 100}.Contain(bias)) continue;
    return FieldError("logit_bias",
                      absl::StrCat("must be from -100 to 100, got ", bias, " for token ", id));
  }
  return absl::OkStatus();
}

absl::Status StatusOf(RowState state) {
  switch (state) {
    case RowState::kDistribution:
      return absl::OkStatus();
    case RowState::kNoDistribution:
      return absl::InternalError("logits contain NaN or +inf, or no finite value");
    case RowState::kOverflows:
      return absl::InvalidArgumentError("logits overflow at this temperature");
  }
  TANDEM_CHECK(false);
}

TokenId ArgMax(absl::Span<const float> values) { return ArgMaxOf(values); }

absl::Status MakeDistribution(absl::Span<const float> logits, const SamplingParams& params,
                              const TokenHistory* history, Distribution* distribution) {
  distribution->device_size = 0;
  const TokenId best = ArgMax(logits);
  if (best < 0) return StatusOf(RowState::kNoDistribution);
  const bool is_constrained = params.constraint != nullptr;
  const bool masks = params.min_tokens > 0 && history->num_output() < params.min_tokens;
  const bool edits =
      params.has_penalties() || !params.logit_bias.empty() || masks || is_constrained;
  if (params.is_greedy() && !edits) {
    distribution->only = best;
    distribution->probs.clear();
    return absl::OkStatus();
  }
  std::vector<float>& row = distribution->probs;
  row.assign(logits.begin(), logits.end());
  if (is_constrained) {
    const absl::Span<const uint32_t> allowed = history->Allowed();
    RETURN_IF_ERROR(history->constraint_status());
    RETURN_IF_ERROR(KeepAllowed(allowed, masks, params, absl::MakeSpan(row)));
  }
  if (params.has_penalties()) ApplyPenalties(params, *history, absl::MakeSpan(row));
  for (const auto& [id, bias] : params.logit_bias) {
    if (static_cast<size_t>(id) < row.size()) row[id] += bias;
  }
  if (masks && !is_constrained) {
    for (const TokenId id : params.ending_tokens) {
      if (static_cast<size_t>(id) < row.size()) row[id] = -kInfinity;
    }
  }
  if (params.is_greedy()) {
    distribution->only = ArgMax(row);
    row.clear();
    if (distribution->only < 0) return absl::InvalidArgumentError(kNothingLeft);
    return absl::OkStatus();
  }
  distribution->only = -1;
  const float largest_logit = LargestOrNan(row);
  if (largest_logit == -kInfinity) return absl::InvalidArgumentError(kNothingLeft);
  const float inverse_temperature = 1.0f / params.temperature;
  const float largest = largest_logit * inverse_temperature;
  if (!std::isfinite(largest)) return StatusOf(RowState::kOverflows);
  KeepTopK(params.top_k, absl::MakeSpan(row));
  Softmax(inverse_temperature, largest, absl::MakeSpan(row));
  if (params.top_p < 1.0f || params.min_p > 0.0f) {
    KeepTopP(params.top_p, absl::MakeSpan(row));
    KeepMinP(params.min_p, absl::MakeSpan(row));
    Renormalize(absl::MakeSpan(row));
  }
  return absl::OkStatus();
}

TokenId DrawFromWeights(absl::Span<const float> weights, const RandomSource& random,
                        const RandomPlace& place) {
  // An entry that beats the one with the largest weight has u <= E < weight * time, where `time` is
  // that of the largest. The slack covers the rounding of these products. So only a few entries
  // need a logarithm.
  constexpr float kSlack = 1.000001f;
  const TokenId favourite = ArgMax(weights);
  if (favourite < 0 || weights[favourite] <= 0.0f) return -1;
  const auto time_of = [&](TokenId v, uint32_t bits) {
    return RandomSource::ToExponential(bits) / weights[v];
  };
  const uint32_t bits = random.Block(place, favourite / 4)[favourite % 4];
  const float bound = time_of(favourite, bits) * kSlack;
  static thread_local std::vector<RaceCandidate> candidates;
  FindRaceCandidates(weights, RandomSource::FirstCounter(place), random.seed(), bound, &candidates);
  TokenId winner = favourite;
  float shortest = kInfinity;
  for (const RaceCandidate& candidate : candidates) {
    const float time = time_of(candidate.index, candidate.bits);
    if (weights[candidate.index] > 0.0f && time < shortest) {
      shortest = time;
      winner = candidate.index;
    }
  }
  return winner;
}

TokenId Draw(const Distribution& distribution, const RandomSource& random,
             const RandomPlace& place) {
  if (distribution.only >= 0) return distribution.only;
  return DrawFromWeights(distribution.probs, random, place);
}

RawLogprobs::RawLogprobs(absl::Span<const float> logits) : logits_(logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - top);
  log_normalizer_ = top + std::log(sum);
}

TokenLogprobs LogprobsOf(absl::Span<const float> logits, TokenId id, int num_top) {
  const RawLogprobs row(logits);
  TokenLogprobs result{.id = id, .logprob = row.Of(id), .top = {}};
  for (const TokenId v : BestIds(logits, num_top)) result.top.emplace_back(v, row.Of(v));
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
  for (const TokenId v : BestIds(distribution.probs, num_top)) {
    if (distribution.probs[v] > 0.0f) result.top.emplace_back(v, logprob(v));
  }
  return result;
}

}  // namespace tandem
