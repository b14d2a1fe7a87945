// Sampling where rows are: half a megabyte for each row of 128 Ki tokens stays on the device, and
// 32 bytes come to the host.
#ifndef TANDEM_KERNELS_ROW_SAMPLER_H_
#define TANDEM_KERNELS_ROW_SAMPLER_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/row_tasks.h"

namespace tandem {

// A backend whose device is not the host may be one of these too: ask with dynamic_cast.
class RowSampler {
 public:
  virtual ~RowSampler() = default;

  // Makes the distributions, then answers about slots, which may be about them; waits. Of rows that
  // are no distribution nothing is written, and slots about them have no meaning. The first failure
  // of anything enqueued so far.
  //   states: as many as rows; answers: as many as slots
  virtual absl::Status Sample(absl::Span<const RowTask> rows, absl::Span<const SlotTask> slots,
                              absl::Span<RowState> states, absl::Span<SlotAnswer> answers) = 0;
};

}  // namespace tandem

#endif  // TANDEM_KERNELS_ROW_SAMPLER_H_
