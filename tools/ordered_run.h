#ifndef TANDEM_TOOLS_ORDERED_RUN_H_
#define TANDEM_TOOLS_ORDERED_RUN_H_

#include <cstddef>
#include <optional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tandem/engine.h"

namespace tandem {

// Runs what `next` gives, until it gives nothing, and hands over what became of each: in the order
// of the requests, and as soon as it and all before it have ended. At most `most` requests are
// begun and not yet handed over, so that nobody's memory grows with their number. A request that is
// an error already, or is refused, or fails, is handed over as that error. The first error of
// `on_result` cancels what runs and is returned.
//
// `has_next`: whether `next` would give something or nothing at once. While it would not, what ends
// is handed over all the same.
absl::Status RunInOrder(Engine* engine, size_t most, absl::FunctionRef<bool()> has_next,
                        absl::FunctionRef<std::optional<absl::StatusOr<Request>>()> next,
                        absl::FunctionRef<absl::Status(absl::StatusOr<Completion>)> on_result);

}  // namespace tandem

#endif  // TANDEM_TOOLS_ORDERED_RUN_H_
