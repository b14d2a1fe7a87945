#ifndef TANDEM_PROOF_REMOTE_REMOTE_SIDE_H_
#define TANDEM_PROOF_REMOTE_REMOTE_SIDE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proof/remote/remote_engine.h"

namespace tandem {

// One of the two servers, and what its answers told.
struct RemoteSide {
  RemoteEngine* engine = nullptr;
  int64_t answers = 0;
  std::optional<int64_t> proposed{};
  int64_t accepted = 0;
  bool has_wide_chunks = false;

  // Asks all, `concurrency` at a time; returns the first error.
  absl::StatusOr<std::vector<RemoteReply>> Ask(absl::Span<const Question> questions,
                                               int concurrency);
};

}  // namespace tandem

#endif  // TANDEM_PROOF_REMOTE_REMOTE_SIDE_H_
