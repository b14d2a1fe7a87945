#ifndef TANDEM_ENGINE_DRAFT_FORMAT_H_
#define TANDEM_ENGINE_DRAFT_FORMAT_H_

#include <string>

#include "absl/status/statusor.h"
#include "tandem/engine_options.h"

namespace tandem {

// What the matrices of a draft weigh, its embedding and head left out.
struct DraftMatrices {
  double bytes = 0.0;  // that one step reads
  double bits_per_weight = 0.0;
};
// Of the model at `path`, whose files are described and not read.
absl::StatusOr<DraftMatrices> DraftMatricesOf(const EngineOptions& options,
                                              const std::string& path);

// The name of the format (kQuantizations) that EngineOptions::draft_quantize "auto" stands for:
// "int4" if the expected gain of drafts rises, else "none". A draft that is small, or is to
// compute with exact activations, stays as it is (docs/drafters.md).
//   target_bytes: that a plain pass reads
std::string ChooseDraftFormat(const DraftMatrices& matrices, double target_bytes,
                              bool has_exact_activations);

}  // namespace tandem

#endif  // TANDEM_ENGINE_DRAFT_FORMAT_H_
