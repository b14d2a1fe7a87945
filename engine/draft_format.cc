#include "engine/draft_format.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "draft/policy/round_costs.h"
#include "engine/draft_mask.h"
#include "kernels/blocks.h"
#include "model/checkpoint/model_config.h"
#include "model/checkpoint/model_tensors.h"
#include "model/checkpoint/weights.h"
#include "tandem/field_error.h"

namespace tandem {
namespace {

// The same as Transformer::LoadOptions::min_packed_bytes, so that requantised weights are kept for
// the next start.
constexpr double kMinBytes = 64 << 20;
constexpr double kBitsOfInt4 = 4.5;  // q4_k
// The fraction of the acceptance that remains with four bits.
constexpr double kKeptByInt4 = 0.97;
constexpr double kWorthPacking = 1.02;  // factor by which the gain must rise

double BytesOf(const ConstMatrixView& view) {
  return view.rows * static_cast<double>(RowBytes(view.dtype, view.cols));
}

}  // namespace

absl::Status VisitTensors(
    const EngineOptions& options, const std::string& path,
    absl::FunctionRef<void(const TensorSpec&, const ConstMatrixView&, double share)> visit) {
  ASSIGN_OR_RETURN(const ModelConfig config, ReadModelConfig(path, options.allow_unknown_config));
  ASSIGN_OR_RETURN(std::shared_ptr<const Weights> stored, Weights::Open(path));
  ASSIGN_OR_RETURN(const std::shared_ptr<const Weights> weights,
                   ArrangeWeights(std::move(stored), config));
  for (const TensorSpec& tensor : TensorsOf(config)) {
    ASSIGN_OR_RETURN(const ConstMatrixView view, weights->Describe(tensor.name, tensor.shape));
    visit(tensor, view, ShareRead(tensor, config));
  }
  return absl::OkStatus();
}

double ExpectedGain(double acceptance, double step, bool in_one_pass) {
  double kept = 1.0;
  return BestRoundGain(step, in_one_pass, [&](int /*k*/) { return kept *= acceptance; });
}

absl::StatusOr<double> BytesReadPerPass(const EngineOptions& options, const std::string& path) {
  double bytes = 0.0;
  RETURN_IF_ERROR(VisitTensors(options, path,
                               [&](const TensorSpec&, const ConstMatrixView& view, double share) {
                                 bytes += share * BytesOf(view);
                               }));
  return bytes;
}

absl::StatusOr<DraftMatrices> DraftMatricesOf(const EngineOptions& options,
                                              const std::string& path) {
  ASSIGN_OR_RETURN(const ModelConfig config, ReadModelConfig(path, options.allow_unknown_config));
  DraftMatrices matrices;
  matrices.in_one_pass = DraftsInOnePass(options, config);
  double num_weights = 0.0;
  RETURN_IF_ERROR(VisitTensors(
      options, path, [&](const TensorSpec& tensor, const ConstMatrixView& view, double share) {
        const bool is_counted =
            tensor.role == TensorRole::kExpert ||
            (tensor.role == TensorRole::kMatrix && tensor.name != "lm_head.weight");
        if (!is_counted) return;
        num_weights += share * static_cast<double>(tensor.num_elements());
        matrices.bytes += share * BytesOf(view);
      }));
  if (num_weights > 0.0) matrices.bits_per_weight = 8.0 * matrices.bytes / num_weights;
  return matrices;
}

absl::StatusOr<Quantization> SelfDraftFormat(absl::string_view draft) {
  if (!absl::ConsumePrefix(&draft, "self:")) return Quantization::kInt4;
  absl::StatusOr<Quantization> format = ParseQuantization(StdView(draft));
  return format.ok() ? format : WithField(format.status(), "draft");
}

Quantization ChooseDraftFormat(const DraftMatrices& matrices, double target_bytes,
                               bool has_exact_activations) {
  if (has_exact_activations || matrices.bytes < kMinBytes) return Quantization::kNone;
  if (matrices.bits_per_weight <= kBitsOfInt4) return Quantization::kNone;
  const double step = matrices.bytes / target_bytes;
  const double as_it_is = ExpectedGain(kUsualAcceptance, step, matrices.in_one_pass);
  const double step_of_int4 = step * kBitsOfInt4 / matrices.bits_per_weight;
  const double as_int4 =
      ExpectedGain(kUsualAcceptance * kKeptByInt4, step_of_int4, matrices.in_one_pass);
  return as_int4 > kWorthPacking * as_it_is ? Quantization::kInt4 : Quantization::kNone;
}

}  // namespace tandem
