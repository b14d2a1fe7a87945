// Distributions that are made, drawn from and judged on the device whose logits they come from,
// with the bits that the host would give them (Sampler in kernels/backend.h).
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

// Whether rows of `model` for such parameters can stay on its device.
bool CanSampleOnDevice(const DeviceRows& rows, const SamplingParams& params);

// What makes the distribution of row `row` of the last pass, of its first `size` tokens, at
// `probs`.
RowTask DistributionTask(const DeviceRows& rows, int row, int size, const SamplingParams& params,
                         float* probs);
// Row `row` of the last pass.
float* LogitsOf(const DeviceRows& rows, int row);

// Sets what a slot draws with.
void SetNoise(const RandomSource& random, const RandomPlace& place, SlotTask* slot);

// Places on a device for the distributions of one round, which are allocated once.
// Thread-compatible.
class DeviceRowPool {
 public:
  // Rows handed out before may be handed out again.
  void BeginRound() { num_used_ = 0; }
  // Makes `distribution` one of `size` tokens on the device, of unspecified contents.
  // RESOURCE_EXHAUSTED if memory is short.
  absl::Status Put(Backend* backend, int size, Distribution* distribution);

 private:
  std::vector<std::shared_ptr<Buffer>> rows_;
  size_t num_used_ = 0;
};
float* DeviceProbs(const Distribution& distribution);
// A copy of `size` floats of the backend's memory.
std::vector<float> RowToHost(Backend* backend, const float* row, int size);
// Brings it over if it is on the device.
void BringToHost(Backend* backend, Distribution* distribution);

}  // namespace tandem

#endif  // TANDEM_MODEL_DEVICE_SAMPLING_H_
