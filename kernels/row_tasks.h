// What is asked of rows of the vocabulary that lie on a device, and what it answers: plain, as the
// device reads and writes it. Pointers are to the device's memory.
#ifndef TANDEM_KERNELS_ROW_TASKS_H_
#define TANDEM_KERNELS_ROW_TASKS_H_

#include <cstdint>

namespace tandem {

enum class RowState : int32_t {
  kDistribution,
  kNoDistribution,  // the logits hold a NaN or +inf, or nothing finite
  kOverflows,       // they do at this temperature
};

// Makes a distribution of a row of logits: what MakeDistribution (model/sampling.h) does behind its
// edits, bit for bit.
struct alignas(16) RowTask {
  const float* logits = nullptr;  // [size]
  float* probs = nullptr;         // [size]; may be `logits`
  int32_t size = 0;
  float inverse_temperature = 1.0f;
  int32_t top_k = 0;    // 0 keeps everything
  float min_p = 0.0f;   // likewise
  uint64_t enough = 0;  // UnitsToReach(top_p) of row_sums.h; 0 keeps everything
  uint64_t unused = 0;
};

enum class SlotDraw : int32_t {
  kLargest,        // nothing: the largest entry of the target's row, which may be logits
  kTarget,         // from the target's row
  kTokenResidual,  // from max(0, target - draft)
  kBlockResidual,  // from max(0, s target - draft), s what survives of the slots before this one
};

// Asks about one slot of a draft: the target's row behind its first tokens, the row that the
// draft's next token was drawn from, and that token. What is not there is null, or -1.
struct alignas(16) SlotTask {
  const float* target = nullptr;  // [target_size]
  const float* draft = nullptr;   // [draft_size]
  int32_t target_size = 0;
  int32_t draft_size = 0;
  int32_t draft_only = -1;  // all of the draft's mass is on this token
  int32_t token = -1;
  SlotDraw draw = SlotDraw::kTarget;
  int32_t first_slot = 0;    // the task of this draft's slot 0; those up to this one lie in order
  uint32_t counter[4] = {};  // of the draw: RandomSource::FirstCounter
  uint64_t key = 0;
};

struct alignas(16) SlotAnswer {
  double residual_mass = 0.0;  // of a residual: the sum of what is drawn from
  float target = 0.0f;         // probability of the token
  float draft = 0.0f;          // likewise
  // From a residual that is nothing but for rounding: from the target's row. -1 if there is nothing
  // to draw from, and of kLargest as Backend::ArgMax says.
  int32_t drawn = -1;
  int32_t unused[3] = {};
};

}  // namespace tandem

#endif  // TANDEM_KERNELS_ROW_TASKS_H_
