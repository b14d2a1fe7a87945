#include "tools/ordered_run.h"

#include <deque>
#include <utility>

namespace tandem {

absl::Status RunInOrder(Engine* engine, size_t most,
                        absl::FunctionRef<std::optional<absl::StatusOr<Request>>()> next,
                        absl::FunctionRef<absl::Status(absl::StatusOr<Completion>)> on_result) {
  std::deque<absl::StatusOr<GenerationId>> begun;
  absl::Status status;
  for (bool are_more = true;;) {
    while (are_more && status.ok() && begun.size() < most) {
      std::optional<absl::StatusOr<Request>> request = next();
      are_more = request.has_value();
      if (!are_more) break;
      begun.push_back(request->ok() ? engine->Submit(**std::move(request), /*on_piece=*/nullptr)
                                    : request->status());
    }
    if (begun.empty()) return status;
    const absl::StatusOr<GenerationId> id = begun.front();
    begun.pop_front();
    absl::StatusOr<Completion> completion = id.ok() ? engine->Wait(*id) : id.status();
    if (!status.ok()) continue;
    status = on_result(std::move(completion));
    if (status.ok()) continue;
    for (const absl::StatusOr<GenerationId>& other : begun) {
      if (other.ok()) engine->Cancel(*other);
    }
  }
}

}  // namespace tandem
