#include "engine/session.h"

#include <utility>

#include "base/guard.h"

namespace tandem {

bool Session::Append(TokenId token, Provenance provenance) {
  tokens.push_back(token);
  if (TokenHistory* used = history_if_used()) {
    used->AddOutput(token);
    used->Commit();
  }
  completion.token_ids.push_back(token);
  completion.provenance.push_back(static_cast<char>(provenance));
  if (stop_tokens.contains(token)) {
    if (includes_stop && text != nullptr) text->Append(token);
    Finish(FinishReason::kStop);
  } else if (text != nullptr && !text->Append(token)) {
    Finish(FinishReason::kStop);
  } else if (length() >= max_length) {
    Finish(FinishReason::kLength);
  }
  return !finished;
}

void Session::Finish(FinishReason reason) {
  if (finished) return;
  finished = true;
  completion.finish_reason = reason;
  if (text != nullptr && reason != FinishReason::kCancelled) text->Finish();
}

void Session::Fail(absl::Status why) {
  finished = true;
  status = std::move(why);
}

void Session::OrFail(const char* what, absl::FunctionRef<void()> work) {
  absl::Status status = Caught(what, work);
  if (!status.ok()) Fail(std::move(status));
}

}  // namespace tandem
