#include "engine/session.h"

#include <utility>

namespace tandem {

bool Session::Append(TokenId token, Provenance provenance) {
  tokens.push_back(token);
  if (TokenCounts* used = counts_if_used()) used->AddOutput(token);
  completion.token_ids.push_back(token);
  completion.provenance.push_back(static_cast<char>(provenance));
  if (stop_tokens.contains(token)) {
    Finish("stop");
  } else if (text != nullptr && !text->Append(token)) {
    Finish("stop");
  } else if (length() >= max_length) {
    Finish("length");
  }
  return !finished;
}

void Session::Finish(std::string_view reason) {
  if (finished) return;
  finished = true;
  completion.finish_reason = std::string(reason);
  if (text != nullptr) text->Finish();
}

void Session::Fail(absl::Status why) {
  finished = true;
  status = std::move(why);
}

}  // namespace tandem
