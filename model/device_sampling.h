// Makes distributions from logits on the device that computed them, with the same bits as on the
// host (Sampler in kernels/backend.h).
#ifndef TANDEM_MODEL_DEVICE_SAMPLING_H_
#define TANDEM_MODEL_DEVICE_SAMPLING_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "base/philox.h"
#include "kernels/backend.h"
#include "model/language_model.h"
#include "model/sampling.h"
#include "tandem/sampling_params.h"

namespace tandem {

// Whether a row can stay on the device when it is sampled with these parameters.
bool CanSampleOnDevice(const DeviceRows& rows, const SamplingParams& params);

// Returns the task that writes the distribution of row `row` of the last pass, over its first
// `size` tokens, to `probs`.
RowTask DistributionTask(const DeviceRows& rows, int row, int size, const SamplingParams& params,
                         float* probs);
// Returns row `row` of the last pass.
float* LogitsOf(const DeviceRows& rows, int row);

// Sets the noise that a slot draws with.
void SetNoise(const RandomSource& random, const RandomPlace& place, SlotTask* slot);

// A pool of device buffers for the distributions of one round, reused from round to round.
// Thread-compatible.
class DeviceRowPool {
 public:
  // Allows the reuse of all buffers.
  void BeginRound() { num_used_ = 0; }
  // Gives `distribution` a buffer for `size` tokens on the device, with unspecified contents.
  // RESOURCE_EXHAUSTED if memory runs out.
  absl::Status Put(Backend* backend, int size, Distribution* distribution);

 private:
  std::vector<std::shared_ptr<Buffer>> rows_;
  size_t num_used_ = 0;
};
float* DeviceProbs(const Distribution& distribution);
// Copies `size` floats from the backend's memory.
std::vector<float> RowToHost(Backend* backend, const float* row, int size);
// Moves the distribution to the host if it is on the device.
void MoveToHost(Backend* backend, Distribution* distribution);

}  // namespace tandem

#endif  // TANDEM_MODEL_DEVICE_SAMPLING_H_
