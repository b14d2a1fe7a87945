#include "kernels/row_math.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/isa/cpu_isa.h"

namespace tandem {
namespace {

// Entries that are processed at a time. Their candidates fit on the stack.
constexpr int kStretch = 1024;

}  // namespace

float LargestOrNan(absl::Span<const float> row) {
  return BestCpuKernels().largest_or_nan(row.data(), static_cast<int>(row.size()));
}

// One pass over memory, in stretches that fit into the L1 cache. Only the first stretch that
// contains the largest entry is read again.
int32_t ArgMaxOf(absl::Span<const float> row) {
  float largest = -std::numeric_limits<float>::infinity();
  size_t found = 0;
  for (size_t begin = 0; begin < row.size(); begin += kStretch) {
    const float here = LargestOrNan(row.subspan(begin, kStretch));
    if (std::isnan(here)) return -1;
    if (here <= largest) continue;
    largest = here;
    found = begin;
  }
  if (!std::isfinite(largest)) return -1;
  return static_cast<int32_t>(std::find(row.begin() + found, row.end(), largest) - row.begin());
}

void Softmax(float scale, float largest, absl::Span<float> row) {
  BestCpuKernels().softmax(row.data(), static_cast<int>(row.size()), scale, largest);
}

void FindRaceCandidates(absl::Span<const float> weights, const std::array<uint32_t, 4>& counter,
                        uint64_t key, float bound, std::vector<RaceCandidate>* candidates) {
  candidates->clear();
  int32_t ids[kStretch];
  uint32_t bits[kStretch];
  for (size_t begin = 0; begin < weights.size(); begin += kStretch) {
    RaceTask task{.weights = weights.data() + begin,
                  .size = static_cast<int>(std::min<size_t>(kStretch, weights.size() - begin)),
                  .counter = {counter[0], counter[1], 0, counter[3]},
                  .first_lane = static_cast<uint32_t>(begin / 4),
                  .key = key,
                  .bound = bound};
    const int count = BestCpuKernels().race_candidates(task, ids, bits);
    for (int i = 0; i < count; ++i) {
      candidates->push_back({static_cast<int32_t>(begin) + ids[i], bits[i]});
    }
  }
}

}  // namespace tandem
