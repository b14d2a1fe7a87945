#ifndef TANDEM_ENGINE_DRAFT_FORMAT_H_
#define TANDEM_ENGINE_DRAFT_FORMAT_H_

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/matrix.h"
#include "model/checkpoint/model_tensors.h"
#include "tandem/engine_options.h"
#include "tandem/number_formats.h"

namespace tandem {

// The size of a draft's matrices, without embedding and head.
struct DraftMatrices {
  double bytes = 0.0;  // read by one step
  double bits_per_weight = 0.0;
  bool in_one_pass = false;  // whether one step proposes all tokens of a round
};
// Returns the size for the model at `path`. Reads only descriptions of tensors, not their data.
absl::StatusOr<DraftMatrices> DraftMatricesOf(const EngineOptions& options,
                                              const std::string& path);

// Calls `visit` for each tensor of the model at `path`, with the share of it that a decoding step
// reads. Reads only descriptions of tensors. Errors name the file.
absl::Status VisitTensors(
    const EngineOptions& options, const std::string& path,
    absl::FunctionRef<void(const TensorSpec&, const ConstMatrixView&, double share)> visit);

// Returns the bytes that a pass of one row of the model at `path` reads. Reads only descriptions.
absl::StatusOr<double> BytesReadPerPass(const EngineOptions& options, const std::string& path);

// The gain of a draft whose tokens are all kept with the same probability, in expectation: times
// plain decoding at the best number of draft tokens. `step`: the cost of a pass of the draft, in
// plain passes; `in_one_pass`: whether one such pass proposes all tokens.
double ExpectedGain(double acceptance, double step, bool in_one_pass);
// The acceptance to expect of an unknown draft (draft/policy/acceptance_estimate.cc).
inline constexpr double kUsualAcceptance = 0.7;

// Returns the format in which a self draft ("self", "self:FORMAT") has the target's weights.
// INVALID_ARGUMENT naming the field `draft` for other names of formats.
absl::StatusOr<Quantization> SelfDraftFormat(absl::string_view draft);

// Returns the format for Quantization::kAuto: kInt4 if that raises the expected gain of drafts,
// else kNone. A small draft, or one that computes with exact activations, is not quantised
// (docs/drafting/drafters.md).
//   target_bytes: bytes that a plain pass reads
Quantization ChooseDraftFormat(const DraftMatrices& matrices, double target_bytes,
                               bool has_exact_activations);

}  // namespace tandem

#endif  // TANDEM_ENGINE_DRAFT_FORMAT_H_
