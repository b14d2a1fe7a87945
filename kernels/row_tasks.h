// Sampling tasks on rows over the vocabulary that are in a device's memory, and their results.
// Plain structs, in the layout that the device reads and writes. Pointers are to the device's
// memory.
#ifndef TANDEM_KERNELS_ROW_TASKS_H_
#define TANDEM_KERNELS_ROW_TASKS_H_

#include <cstdint>

namespace tandem {

enum class RowState : int32_t {
  kDistribution,
  kNoDistribution,  // the logits contain a NaN or +inf, or no finite entry
  kOverflows,       // the logits overflow at this temperature
};

// Turns a row of logits into a distribution, bit for bit as MakeDistribution (model/sampling.h)
// does after it has edited the logits.
struct alignas(16) RowTask {
  const float* logits = nullptr;  // [size]
  float* probs = nullptr;         // [size]; may be `logits`
  int32_t size = 0;
  float inverse_temperature = 1.0f;
  int32_t top_k = 0;    // 0 keeps everything
  float min_p = 0.0f;   // 0 keeps everything
  uint64_t enough = 0;  // UnitsToReach(top_p) of row_sums.h; 0 keeps everything
  uint64_t unused = 0;
};

// How a slot's token is drawn.
enum class SlotDraw : int32_t {
  kLargest,        // the argmax of the target's row, which may be logits; no randomness
  kTarget,         // from the target's row
  kTokenResidual,  // from max(0, target - draft)
  kBlockResidual,  // from max(0, s * target - draft), s: the survival of the slots before this one
};

// Judges one slot of a draft: the target's row at this position, the row that the draft's token was
// drawn from, and that token. Members that do not apply are null or -1.
struct alignas(16) SlotTask {
  const float* target = nullptr;  // [target_size]
  const float* draft = nullptr;   // [draft_size]
  int32_t target_size = 0;
  int32_t draft_size = 0;
  int32_t draft_only = -1;  // the token that has all of the draft's probability
  int32_t token = -1;
  SlotDraw draw = SlotDraw::kTarget;
  int32_t first_slot = 0;    // task index of this draft's slot 0; its slots are consecutive tasks
  uint32_t counter[4] = {};  // RandomSource::FirstCounter of the draw
  uint64_t key = 0;
};

struct alignas(16) SlotAnswer {
  double residual_mass = 0.0;  // the sum of the residual, if the draw is from one
  float target = 0.0f;         // the token's probability in the target's row
  float draft = 0.0f;          // the token's probability in the draft's row
  // The token drawn. If rounding leaves a residual without mass, it is drawn from the target's row.
  // -1 if that is not possible either; for kLargest, as in Backend::ArgMax.
  int32_t drawn = -1;
  int32_t unused[3] = {};
};

}  // namespace tandem

#endif  // TANDEM_KERNELS_ROW_TASKS_H_
