#include "tools/conversation.h"

#include <algorithm>
#include <cstdint>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status_macros.h"

namespace tandem {
namespace {

constexpr absl::Duration kBetweenLooks = absl::Milliseconds(50);

}  // namespace

int Conversation::room() const {
  const ModelInfo target = engine_->target_info();
  const int64_t cached = int64_t{target.num_pages} * target.page_size;
  return static_cast<int>(std::min<int64_t>(target.context_length, cached));
}

absl::StatusOr<Request> Conversation::NextRequest() const {
  std::vector<ChatMessage> messages;
  if (!system_.empty()) messages.push_back({.role = "system", .content = system_});
  messages.insert(messages.end(), said_.begin(), said_.end());
  Request request = base_;
  RETURN_IF_ERROR(format_.Put(messages, &request));
  const int left = room() - static_cast<int>(request.prompt_ids.size());
  if (left < 1) {
    return absl::OutOfRangeError(
        absl::StrCat("the context is full: the conversation has ", request.prompt_ids.size(),
                     " tokens, and there is room for ", room(), "; /reset begins a new one"));
  }
  request.max_tokens = std::min(request.max_tokens, left);
  return request;
}

absl::StatusOr<Completion> Conversation::Say(const std::string& message,
                                             const Callbacks& callbacks) {
  said_.push_back({.role = "user", .content = message});
  absl::Cleanup unsay = [this] { said_.pop_back(); };
  ASSIGN_OR_RETURN(Request request, NextRequest());
  callbacks.on_prompt(request.prompt_ids);
  ASSIGN_OR_RETURN(const GenerationId id,
                   engine_->Submit(std::move(request), [&](const Piece& piece) {
                     return callbacks.on_piece(piece) && !callbacks.is_interrupted();
                   }));
  absl::StatusOr<Completion> answer = engine_->Wait(id, kBetweenLooks);
  while (absl::IsDeadlineExceeded(answer.status())) {
    if (callbacks.is_interrupted()) engine_->Cancel(id);
    answer = engine_->Wait(id, kBetweenLooks);
  }
  RETURN_IF_ERROR(answer.status());
  if (answer->text.empty()) return answer;  // nothing that a template could put
  std::move(unsay).Cancel();
  said_.push_back({.role = "assistant", .content = answer->text});
  return answer;
}

}  // namespace tandem
