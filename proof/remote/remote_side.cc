#include "proof/remote/remote_side.h"

#include <utility>

#include "base/status_macros.h"

namespace tandem {

absl::StatusOr<std::vector<RemoteReply>> RemoteSide::Ask(absl::Span<const Question> questions,
                                                         int concurrency) {
  std::vector<absl::StatusOr<RemoteReply>> replies(questions.size(), RemoteReply());
  ForAll(questions.size(), concurrency, [&](size_t i) { replies[i] = engine->Ask(questions[i]); });
  std::vector<RemoteReply> all;
  for (absl::StatusOr<RemoteReply>& reply : replies) {
    RETURN_IF_ERROR(reply.status());
    answers += static_cast<int64_t>(reply->answers.size());
    if (reply->proposed.has_value()) proposed = proposed.value_or(0) + *reply->proposed;
    accepted += reply->accepted.value_or(0);
    has_wide_chunks |= reply->has_wide_chunks;
    all.push_back(*std::move(reply));
  }
  return all;
}

}  // namespace tandem
