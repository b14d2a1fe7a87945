#include "draft/policy/draft_head.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/algorithm/container.h"
#include "draft/policy/round_costs.h"

namespace tandem {
namespace {

constexpr int kMaxInterval = 32768;
// When more tokens than this were counted, counts are halved, so that recent texts weigh more.
constexpr double kMaxCounted = 1 << 18;
// The minimum share of the counted tokens that a new head has to add to the old one.
constexpr double kWorthMaking = 0.002;
// The minimum gain of a change of size.
constexpr double kWorthResizing = 0.01;
// The number of tokens kept in a file. Further ones were seldom seen.
constexpr int kMaxKept = 16384;

// The prior coverage by share of the vocabulary, and its weight in tokens. With SmolLM2 (49,152
// tokens) the first 8,192 tokens covered .90 of its answers, and the first 16,384 covered .94. With
// Qwen2.5-Coder (151,936 tokens) the first 16,384 covered .83 of the tokens that the draft got
// right, and the first 32,768 covered .92.
constexpr double kPriorTokens = 256.0;
double PriorCoverage(double share) { return 1.0 - std::min(1.0, std::pow(64.0 * share, -0.9)); }

}  // namespace

DraftHead::DraftHead(std::vector<TokenId> ranking, int num_fixed, const Bytes& bytes)
    : prior_(std::move(ranking)),
      ranking_(prior_),
      num_fixed_(num_fixed),
      bytes_(bytes),
      size_(static_cast<int>(prior_.size())) {
  const TokenId last = prior_.empty() ? -1 : *absl::c_max_element(prior_);
  place_.assign(last + 1, -1);
  count_.assign(last + 1, 0.0f);
  Rank();
  size_ = BestSize(AcceptanceEstimate(), /*least_gain=*/0.0);
  is_in_.assign(last + 1, false);
  for (const TokenId id : Ids()) is_in_[id] = true;
}

int DraftHead::NumSizes() const {
  int count = 0;
  while (count < kNumSizes && kMinTokens << count < num_tokens()) ++count;
  return count;
}

bool DraftHead::Count(TokenId token) {
  if (token < 0 || token >= static_cast<TokenId>(place_.size()) || place_[token] < 0) return false;
  count_[token] += 1.0f;
  num_counted_ += 1.0;
  ++num_observed_;
  return true;
}

void DraftHead::ObservePrompt(absl::Span<const TokenId> tokens) {
  for (const TokenId token : tokens) Count(token);
}

void DraftHead::ObserveOutput(absl::Span<const TokenId> tokens) {
  for (const TokenId token : tokens) {
    if (!Count(token)) continue;
    int size = 0;
    while (size < kNumSizes - 1 && place_[token] >= kMinTokens << size) ++size;
    found_[size] += 1.0;
  }
}

// Tokens that were never seen keep their order.
void DraftHead::Rank() {
  ranking_ = prior_;
  std::stable_sort(ranking_.begin() + num_fixed_, ranking_.end(),
                   [this](TokenId a, TokenId b) { return count_[a] > count_[b]; });
  for (int place = 0; place < num_tokens(); ++place) place_[ranking_[place]] = place;
}

double DraftHead::CoverageOf(int size) const {
  if (size >= num_tokens()) return 1.0;
  double found = kPriorTokens * PriorCoverage(static_cast<double>(size) / num_tokens());
  double all = kPriorTokens;
  for (int i = 0; i < kNumSizes; ++i) {
    if (kMinTokens << i <= size) found += found_[i];
    all += found_[i];
  }
  return found / all;
}

// Returns the size with the greatest gain. An acceptable token without a row is lost.
int DraftHead::BestSize(const AcceptanceEstimate& acceptance, double least_gain) const {
  std::array<double, kMaxGainTokens> survival;
  acceptance.Survival({.source = DraftSource::kModel}, nullptr, absl::MakeSpan(survival));
  const double now = CoverageOf(size_);
  const auto gain_at = [&](int size) {
    const double step = (bytes_.body + bytes_.row * size) / bytes_.target;
    const double kept = CoverageOf(size) / now;
    double kept_so_far = 1.0;
    return BestRoundGain(step, bytes_.in_one_pass, [&](int k) {
      kept_so_far *= kept;
      return std::min(1.0, survival[k - 1] * kept_so_far);
    });
  };
  int best = size_;
  double best_gain = gain_at(best) * (1.0 + least_gain);
  for (int i = 0; i < NumSizes(); ++i) {
    const int size = kMinTokens << i;
    if (const double gain = gain_at(size); gain > best_gain) {
      best = size;
      best_gain = gain;
    }
  }
  return gain_at(num_tokens()) > best_gain ? num_tokens() : best;
}

bool DraftHead::Update(const AcceptanceEstimate& acceptance) {
  num_observed_ = 0;
  interval_ = std::min(2 * interval_, kMaxInterval);
  const int size = BestSize(acceptance, kWorthResizing);
  Rank();
  double newly_found = 0.0;
  for (int place = 0; place < size; ++place) {
    if (!is_in_[ranking_[place]]) newly_found += count_[ranking_[place]];
  }
  if (num_counted_ > kMaxCounted) {
    for (float& count : count_) count *= 0.5f;
    num_counted_ *= 0.5;
  }
  // The ranking has changed, so places in the old one count less.
  for (double& found : found_) found *= 0.5;
  if (size == size_ && newly_found < kWorthMaking * num_counted_) return false;
  size_ = size;
  is_in_.assign(is_in_.size(), false);
  for (const TokenId id : Ids()) is_in_[id] = true;
  return true;
}

std::vector<TokenId> DraftHead::Ids() const {
  std::vector<TokenId> ids(ranking_.begin(), ranking_.begin() + size_);
  absl::c_sort(ids);
  return ids;
}

void DraftHead::Serialize(StateArchive* archive) {
  constexpr double kMost = 1e9;
  for (double& found : found_) archive->Pass(0.0, kMost, &found);
  std::vector<TokenId> kept = ranking_;
  absl::c_stable_sort(kept, [this](TokenId a, TokenId b) { return count_[a] > count_[b]; });
  int num_kept = 0;
  while (num_kept < std::min(kMaxKept, num_tokens()) && count_[kept[num_kept]] > 0.0f) ++num_kept;
  archive->Pass(0, kMaxKept, &num_kept);
  kept.resize(num_kept);
  for (TokenId& id : kept) {
    archive->Pass(0, static_cast<int>(place_.size()) - 1, &id);
    double count = count_[id];
    archive->Pass(0.0, kMost, &count);
    if (!archive->is_reading()) continue;
    count_[id] = static_cast<float>(count);
    num_counted_ += count;
  }
}

}  // namespace tandem
