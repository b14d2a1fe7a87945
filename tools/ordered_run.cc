#include "tools/ordered_run.h"

#include <deque>
#include <utility>

#include "absl/time/time.h"

namespace tandem {
namespace {

// How often is looked for the next request while there is none.
constexpr absl::Duration kPause = absl::Milliseconds(5);

}  // namespace

absl::Status RunInOrder(Engine* engine, size_t most, absl::FunctionRef<bool()> has_next,
                        absl::FunctionRef<std::optional<absl::StatusOr<Request>>()> next,
                        absl::FunctionRef<absl::Status(absl::StatusOr<Completion>)> on_result) {
  std::deque<absl::StatusOr<GenerationId>> begun;
  absl::Status status;
  for (bool are_more = true;;) {
    const auto takes_more = [&] { return are_more && status.ok() && begun.size() < most; };
    while (takes_more() && (begun.empty() || has_next())) {
      std::optional<absl::StatusOr<Request>> request = next();
      are_more = request.has_value();
      if (!are_more) break;
      begun.push_back(request->ok() ? engine->Submit(**std::move(request), /*on_piece=*/nullptr)
                                    : request->status());
    }
    if (begun.empty()) return status;
    const absl::StatusOr<GenerationId> id = begun.front();
    const absl::Duration timeout = takes_more() ? kPause : absl::InfiniteDuration();
    absl::StatusOr<Completion> completion = id.ok() ? engine->Wait(*id, timeout) : id.status();
    if (absl::IsDeadlineExceeded(completion.status())) continue;  // of this waiting: none has one
    begun.pop_front();
    if (!status.ok()) continue;
    status = on_result(std::move(completion));
    if (status.ok()) continue;
    for (const absl::StatusOr<GenerationId>& other : begun) {
      if (other.ok()) engine->Cancel(*other);
    }
  }
}

}  // namespace tandem
