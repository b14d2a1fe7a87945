#ifndef TANDEM_ENGINE_RECORD_PASSES_H_
#define TANDEM_ENGINE_RECORD_PASSES_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "engine/runtime.h"
#include "model/pass_message.h"
#include "tandem/engine_options.h"

namespace tandem {

// A pass that is recorded before the first request.
struct RecordedPass {
  bool of_draft = false;
  PassSize size;
  bool reads_own_states = false;  // Transformer::RecordPass
};

// Returns the common passes of an engine with these models, most useful first: the largest, which
// allocate the memory that recordings use, then rounds of one sequence, then rounds of more. At
// most kMaxRecordedPasses.
std::vector<RecordedPass> CommonPasses(const EngineOptions& options, const Runtime& runtime);

inline constexpr int kMaxRecordedPasses = 24;
inline constexpr absl::Duration kMaxRecordingTime = absl::Seconds(2);

// Records common passes on devices that replay them, until kMaxRecordingTime has passed.
absl::Status RecordPasses(const EngineOptions& options, Runtime* runtime);

}  // namespace tandem

#endif  // TANDEM_ENGINE_RECORD_PASSES_H_
