// Sampling where rows are: half a megabyte for each row of 128 Ki tokens stays on the device, and
// 32 bytes come to the host.
#ifndef TANDEM_KERNELS_SAMPLER_H_
#define TANDEM_KERNELS_SAMPLER_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/row_tasks.h"

namespace tandem {

// Of a backend whose device is not the host: Backend::sampler.
class Sampler {
 public:
  virtual ~Sampler() = default;

  // Brings over what will be asked, in the order of calls of Run; what is pointed to may be
  // computed until then. Forgets what was asked before. RESOURCE_EXHAUSTED if memory is short.
  virtual absl::Status Prepare(absl::Span<const RowTask> rows,
                               absl::Span<const SlotTask> slots) = 0;
  // Enqueues the next so many rows, of which distributions are made, and behind them slots, which
  // may be about these. Of rows that are no distribution nothing is written, and slots about them
  // have no meaning.
  virtual void Run(int num_rows, int num_slots) = 0;
  // Enqueues ids[i] = what slot sources[i] drew, or nothing where sources[i] < 0.
  //   sources, ids: [count], the backend's
  virtual void TakeDrawn(const int32_t* sources, int count, int32_t* ids) = 0;
  // Waits. The first failure of anything enqueued so far.
  //   states: of all rows; answers: of all slots
  virtual absl::Status Collect(absl::Span<RowState> states, absl::Span<SlotAnswer> answers) = 0;

  // All of it.
  absl::Status Sample(absl::Span<const RowTask> rows, absl::Span<const SlotTask> slots,
                      absl::Span<RowState> states, absl::Span<SlotAnswer> answers) {
    if (absl::Status status = Prepare(rows, slots); !status.ok()) return status;
    Run(static_cast<int>(rows.size()), static_cast<int>(slots.size()));
    return Collect(states, answers);
  }
};

}  // namespace tandem

#endif  // TANDEM_KERNELS_SAMPLER_H_
