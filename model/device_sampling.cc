#include "model/device_sampling.h"

#include <algorithm>
#include <memory>

#include "base/check.h"
#include "base/status_macros.h"
#include "kernels/row_sums.h"

namespace tandem {

bool CanSampleOnDevice(const DeviceRows& rows, const SamplingParams& params) {
  return rows.sampler != nullptr && params.takes_row() && !params.is_greedy();
}

float* LogitsOf(const DeviceRows& rows, int row) {
  TANDEM_CHECK(0 <= row && row < rows.logits.rows);
  return static_cast<float*>(rows.logits.data) + row * rows.logits.stride;
}

RowTask DistributionTask(const DeviceRows& rows, int row, int size, const SamplingParams& params,
                         float* probs) {
  TANDEM_CHECK(0 < size && size <= rows.logits.cols);
  return {.logits = LogitsOf(rows, row),
          .probs = probs,
          .size = size,
          .inverse_temperature = 1.0f / params.temperature,
          .top_k = params.top_k,
          .min_p = params.min_p,
          .enough = params.top_p < 1.0f ? UnitsToReach(params.top_p) : 0};
}

void SetNoise(const RandomSource& random, const RandomPlace& place, SlotTask* slot) {
  const auto counter = RandomSource::FirstCounter(place);
  std::copy(counter.begin(), counter.end(), slot->counter);
  slot->key = random.seed();
}

absl::Status DeviceRowPool::Put(Backend* backend, int size, Distribution* distribution) {
  const size_t bytes = sizeof(float) * static_cast<size_t>(size);
  if (num_used_ == rows_.size()) rows_.push_back(std::make_shared<Buffer>());
  std::shared_ptr<Buffer>& row = rows_[num_used_];
  if (row->size_bytes() < bytes) {
    ASSIGN_OR_RETURN(*row, backend->Allocate(bytes));
  }
  ++num_used_;
  distribution->only = -1;
  distribution->probs.clear();
  distribution->device_size = size;
  distribution->device = row;
  return absl::OkStatus();
}

float* DeviceProbs(const Distribution& distribution) {
  TANDEM_CHECK(distribution.device_size > 0);
  return static_cast<float*>(distribution.device->data());
}

std::vector<float> RowToHost(Backend* backend, const float* row, int size) {
  std::vector<float> host(size);
  backend->Download(row, {reinterpret_cast<std::byte*>(host.data()), host.size() * sizeof(float)});
  return host;
}

void MoveToHost(Backend* backend, Distribution* distribution) {
  if (distribution->only >= 0 || distribution->device_size == 0) return;
  distribution->probs = RowToHost(backend, DeviceProbs(*distribution), distribution->device_size);
  distribution->device_size = 0;
}

}  // namespace tandem
