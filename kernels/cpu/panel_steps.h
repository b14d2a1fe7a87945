// How products go through panels; include after a simd_*.h.
#ifndef TANDEM_KERNELS_CPU_PANEL_STEPS_H_
#define TANDEM_KERNELS_CPU_PANEL_STEPS_H_

#include "kernels/cpu/cpu_kernels.h"

namespace tandem {
namespace {

inline constexpr int kPanelVectors = kPanelOutputs / kLanes;
inline constexpr int kVectorBytes = kStepBytes / kPanelVectors;
// The lines of a step, all of which a single group of rows fetches.
inline constexpr int kStepLines = kStepBytes / 64;

// How far ahead of itself a product fetches. One that reads its weights once fetches just in time
// into the L1 cache; one that goes over a block several times, into the L2
// cache, for in the first it would drive out the block: 8 rows then took 2.0 instead of 1.2 times
// as long as one.
inline constexpr int kNearFetchBytes = 5120;

}  // namespace
}  // namespace tandem

#endif  // TANDEM_KERNELS_CPU_PANEL_STEPS_H_
