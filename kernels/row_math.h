// What sampling does to a row of the vocabulary, on the host, by the best instruction set that this
// machine has. Elementwise results and sums come in one fixed order: a row has the same bits
// whatever else is computed.
#ifndef TANDEM_KERNELS_ROW_MATH_H_
#define TANDEM_KERNELS_ROW_MATH_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace tandem {

// The largest value, or a NaN if there is one; -infinity for an empty row.
float LargestOrNan(absl::Span<const float> row);

// The index of the largest value, of equals the lowest; -1 if there is a NaN or +inf, or nothing
// finite.
int32_t ArgMaxOf(absl::Span<const float> row);

// row = softmax(row * scale).
// REQUIRES: largest, the maximum of row * scale, is finite; entries may be -infinity.
void Softmax(float scale, float largest, absl::Span<float> row);

// An entry that may win a race (model/sampling.h), and its random bits.
struct RaceCandidate {
  int32_t index;
  uint32_t bits;
};
// The entries v, in increasing order, whose u = (bits + 1/2) / 2^32 is at most weights[v] * bound.
// Entry v has the bits of word v % 4 of the Philox block with `counter` and v / 4 in its word 2.
void FindRaceCandidates(absl::Span<const float> weights, const std::array<uint32_t, 4>& counter,
                        uint64_t key, float bound, std::vector<RaceCandidate>* candidates);

}  // namespace tandem

#endif  // TANDEM_KERNELS_ROW_MATH_H_
