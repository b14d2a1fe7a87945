#include "engine/device_memory.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "engine/draft_format.h"
#include "kernels/blocks.h"
#include "kernels/number_formats.h"
#include "model/checkpoint/model_config.h"
#include "model/checkpoint/model_tensors.h"
#include "model/checkpoint/weights.h"

namespace tandem {
namespace {

// Returns the bytes of a model's tensors, with those that can be quantised as `quantized`.
absl::StatusOr<int64_t> WeightBytes(const std::string& path, std::optional<DType> quantized,
                                    const std::vector<std::string>& allow_unknown_config) {
  ASSIGN_OR_RETURN(const ModelConfig config, ReadModelConfig(path, allow_unknown_config));
  ASSIGN_OR_RETURN(std::shared_ptr<const Weights> stored, Weights::Open(path));
  ASSIGN_OR_RETURN(const std::shared_ptr<const Weights> weights,
                   ArrangeWeights(std::move(stored), config));
  int64_t bytes = 0;
  for (const TensorSpec& tensor : TensorsOf(config)) {
    ASSIGN_OR_RETURN(const ConstMatrixView view, weights->Describe(tensor.name, tensor.shape));
    size_t row_bytes = RowBytes(view.dtype, view.cols);
    const bool is_matrix = tensor.role != TensorRole::kNorm && tensor.role != TensorRole::kBias;
    if (quantized.has_value() && is_matrix && view.cols % kBlockGroup == 0) {
      row_bytes = std::min(row_bytes, RowBytes(*quantized, view.cols));
    }
    bytes += view.rows * static_cast<int64_t>(row_bytes);
  }
  return bytes;
}

}  // namespace

int64_t BytesOnDevice(const EngineOptions& options) {
  int64_t bytes = 0;
  const auto add = [&](const std::string& path, Quantization format) {
    const absl::StatusOr<int64_t> weights =
        WeightBytes(path, BlockTypeOf(format), options.allow_unknown_config);
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
