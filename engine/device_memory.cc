#include "engine/device_memory.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/process_limits.h"
#include "base/status_macros.h"
#include "engine/draft_format.h"
#include "kernels/backend.h"
#include "kernels/blocks.h"
#include "kernels/cuda_devices.h"
#include "kernels/number_formats.h"
#include "model/checkpoint/model_config.h"
#include "model/checkpoint/model_tensors.h"
#include "model/transformer.h"

namespace tandem {
namespace {

// Returns the bytes of a model's tensors, with those that can be quantised as `quantized`.
absl::StatusOr<int64_t> WeightBytes(const EngineOptions& options, const std::string& path,
                                    std::optional<DType> quantized) {
  int64_t bytes = 0;
  RETURN_IF_ERROR(VisitTensors(
      options, path, [&](const TensorSpec& tensor, const ConstMatrixView& view, double) {
        size_t row_bytes = RowBytes(view.dtype, view.cols);
        const bool is_matrix = tensor.role != TensorRole::kNorm && tensor.role != TensorRole::kBias;
        if (quantized.has_value() && is_matrix && view.cols % kBlockGroup == 0) {
          row_bytes = std::min(row_bytes, RowBytes(*quantized, view.cols));
        }
        bytes += view.rows * static_cast<int64_t>(row_bytes);
      }));
  return bytes;
}

// Room for the sequences of a full batch and for as many earlier prompts.
constexpr int kRoomForPrefixes = 2;

// Returns the bytes of a cached page of a model.
int64_t PageBytes(const ModelConfig& config, KvCacheType type, bool is_on_host,
                  const EngineOptions& options) {
  const KvDType dtype = KvDTypeOf(type, is_on_host ? KvDType::kF32 : KvDType::kBF16);
  return static_cast<int64_t>(KvLayoutOf(config, options.page_size, dtype).page_bytes());
}

}  // namespace

int64_t UsefulPages(const EngineOptions& options, int context_length) {
  const int64_t of_sequence = (int64_t{context_length} + options.page_size - 1) / options.page_size;
  return (of_sequence + 1) * options.max_batch * kRoomForPrefixes;
}

// Ranks have neighbouring devices, so with `auto` they begin with the first.
absl::StatusOr<std::unique_ptr<Backend>> MakeBackendFor(const EngineOptions& options,
                                                        const CpuOptions& cpu) {
  if (options.device != "auto" || options.tensor_parallel > 1 || !HasCudaDriver()) {
    return MakeBackend(options.device, cpu);
  }
  return MakeFittingBackend(options.device, cpu, BytesOnDevice(options));
}

absl::StatusOr<MemoryPlan> PlanMemory(const EngineOptions& options, int64_t free_bytes) {
  MemoryPlan plan = {.device = "cpu", .model_bytes = BytesOnDevice(options)};
  if (options.device != "cpu" && HasCudaDriver()) {
    ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, MakeBackendFor(options, CpuOptions()));
    plan.device = std::string(backend->name());
    plan.free_bytes = backend->free_memory_bytes().value_or(0);
  }
  const bool is_on_host = plan.device == "cpu";
  if (is_on_host) {
    plan.free_bytes = std::min(free_bytes, AvailableMemoryBytes().value_or(free_bytes));
  }
  ASSIGN_OR_RETURN(const ModelConfig target,
                   ReadModelConfig(options.target, options.allow_unknown_config));
  int64_t page_bytes = PageBytes(target, options.kv_cache, is_on_host, options);
  if (!options.draft.empty()) {
    // A draft head's configuration may lack what a model's has; its one layer counts as nothing.
    const absl::StatusOr<ModelConfig> draft =
        IsSelfDraft(options.draft) ? target
                                   : ReadModelConfig(options.draft, options.allow_unknown_config);
    if (draft.ok()) {
      page_bytes += PageBytes(*draft, options.kv_cache_of_draft(), is_on_host, options);
    }
  }
  const int context = options.context > 0 ? std::min(options.context, target.context_length)
                                          : target.context_length;
  const int64_t memory = options.kv_memory_bytes > 0 ? options.kv_memory_bytes
                                                     : plan.free_bytes / kDefaultShareOfFreeMemory;
  plan.cache_bytes = std::min(memory, UsefulPages(options, context) * page_bytes);
  return plan;
}

int64_t BytesOnDevice(const EngineOptions& options) {
  int64_t bytes = 0;
  const auto add = [&](const std::string& path, Quantization format) {
    const absl::StatusOr<int64_t> weights = WeightBytes(options, path, BlockTypeOf(format));
    bytes += weights.value_or(0);
  };
  add(options.target, options.quantize);
  if (IsSelfDraft(options.draft)) {
    add(options.target, SelfDraftFormat(options.draft).value_or(Quantization::kInt4));
  } else if (!options.draft.empty()) {
    add(options.draft, options.draft_quantize);
  }
  return bytes + bytes / 8;
}

}  // namespace tandem
