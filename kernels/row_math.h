// Operations of sampling on a row over the vocabulary, on the host, with the best instruction set
// of this machine. Sums are added in a fixed order, so the bits of a result depend only on its row.
#ifndef TANDEM_KERNELS_ROW_MATH_H_
#define TANDEM_KERNELS_ROW_MATH_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace tandem {

// The largest value, or a NaN if the row contains one; -infinity for an empty row.
float LargestOrNan(absl::Span<const float> row);

// The index of the largest value; among equals, the lowest. -1 if the row contains a NaN or +inf,
// or no finite value.
int32_t ArgMaxOf(absl::Span<const float> row);

// row = softmax(row * scale).
// REQUIRES: largest, the maximum of row * scale, is finite; entries may be -infinity.
void Softmax(float scale, float largest, absl::Span<float> row);

// An entry that can win a race (model/sampling.h), and its random bits.
struct RaceCandidate {
  int32_t index;
  uint32_t bits;
};
// Finds the entries v, in increasing order, whose u = (bits + 1/2) / 2^32 is at most
// weights[v] * bound. The bits of entry v are word v % 4 of the Philox block whose counter is
// `counter` with v / 4 as word 2.
void FindRaceCandidates(absl::Span<const float> weights, const std::array<uint32_t, 4>& counter,
                        uint64_t key, float bound, std::vector<RaceCandidate>* candidates);

}  // namespace tandem

#endif  // TANDEM_KERNELS_ROW_MATH_H_
