#include "draft/policy/draft_temperature.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/row_math.h"

namespace tandem {
namespace {

// Rounds between observations: few at first, more later, because an observation costs ten
// softmaxes.
constexpr int kFewestRounds = 4;
constexpr int kMaxRounds = 64;
constexpr double kDraftTemperatureMemory = 0.99;
constexpr double kMaxLooks = 1.0 / (1.0 - kDraftTemperatureMemory);
// A depth starts from the mean of all depths with the weight of this many observations of its own.
constexpr double kPriorLooks = 8.0;
// With fewer observations the request's own temperature is kept.
constexpr int kMinLooks = 4;

int Clamped(int depth) { return std::min(depth, DraftTemperature::kNumDepths - 1); }

}  // namespace

float DraftTemperature::At(int depth) const { return kFactors[chosen_[Clamped(depth)]]; }

int DraftTemperature::NextDepth(int num_tokens) {
  if (num_tokens == 0) return -1;
  if (++rounds_ < std::clamp(num_observed_, kFewestRounds, kMaxRounds)) return -1;
  rounds_ = 0;
  next_depth_ = (next_depth_ + 1) % std::min(num_tokens, kNumDepths);
  return next_depth_;
}

void DraftTemperature::Observe(int depth, const Distribution& target, const Distribution& draft) {
  if (target.only >= 0 || draft.only >= 0 || draft.probs.empty()) return;
  const size_t vocab = std::min(target.probs.size(), draft.probs.size());
  logs_.resize(draft.probs.size());
  std::transform(draft.probs.begin(), draft.probs.end(), logs_.begin(),
                 [](float q) { return std::log(q); });
  const float largest = *std::max_element(logs_.begin(), logs_.end());
  const float drawn_with = At(depth);
  Sums overlaps{};
  for (size_t i = 0; i < kFactors.size(); ++i) {
    const float factor = kFactors[i] / drawn_with;
    row_ = logs_;
    Softmax(factor, largest * factor, absl::MakeSpan(row_));
    for (size_t v = 0; v < vocab; ++v) overlaps[i] += std::min(row_[v], target.probs[v]);
    if (!std::isfinite(overlaps[i])) return;
  }
  for (Depth* sums : {&depths_[Clamped(depth)], &all_}) {
    sums->count = kDraftTemperatureMemory * sums->count + 1.0;
    for (size_t i = 0; i < overlaps.size(); ++i) {
      sums->sums[i] = kDraftTemperatureMemory * sums->sums[i] + overlaps[i];
    }
  }
  ++num_observed_;
}

std::array<double, DraftTemperature::kFactors.size()> DraftTemperature::Scores(int depth) const {
  const Depth& own = depths_[Clamped(depth)];
  Sums scores{};
  if (all_.count == 0.0) return scores;
  for (size_t i = 0; i < scores.size(); ++i) {
    const double general = all_.sums[i] / all_.count;
    scores[i] = (own.sums[i] + kPriorLooks * general) / (own.count + kPriorLooks);
  }
  return scores;
}

void DraftTemperature::Update() {
  if (num_observed_ < kMinLooks) return;
  for (int depth = 0; depth < kNumDepths; ++depth) {
    const Sums scores = Scores(depth);
    chosen_[depth] =
        static_cast<int>(std::max_element(scores.begin(), scores.end()) - scores.begin());
  }
}

void DraftTemperature::Serialize(StateArchive* archive) {
  const auto serialize = [archive](Depth* depth) {
    archive->Pass(0.0, kMaxLooks, &depth->count);
    for (double& sum : depth->sums) archive->Pass(0.0, depth->count, &sum);
  };
  for (Depth& depth : depths_) serialize(&depth);
  serialize(&all_);
  archive->Pass(0, std::numeric_limits<int>::max() - 1, &num_observed_);
  Update();
}

}  // namespace tandem
