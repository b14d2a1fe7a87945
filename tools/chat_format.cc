#include "tools/chat_format.h"

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "tandem/field_error.h"

namespace tandem {

absl::StatusOr<ChatFormat> ChatFormat::Load(const std::string& path, const Tokenizer* tokenizer) {
  ASSIGN_OR_RETURN(ChatTemplate chat_template, ChatTemplate::Load(path));
  if (chat_template.is_plain()) {
    return absl::UnimplementedError(absl::StrCat(
        path,
        ": has no chat template, so that it is no model to talk with (`tandem fetch` lists "
        "some that are)"));
  }
  return ChatFormat(tokenizer, std::move(chat_template));
}

absl::Status ChatFormat::Put(absl::Span<const ChatMessage> messages, Request* request) const {
  ASSIGN_OR_RETURN(request->prompt_ids,
                   EncodeChat(template_, *tokenizer_, ChatInputOf(messages, absl::Now())));
  request->prompt.clear();
  if (request->ignore_eos) return absl::OkStatus();
  const std::vector<TokenId> ends = EndTokenIds(template_, *tokenizer_);
  request->stop_tokens.insert(request->stop_tokens.end(), ends.begin(), ends.end());
  return absl::OkStatus();
}

absl::Status ChatFormat::PutTurn(const std::optional<std::string>& system, Request* request) const {
  if (!request->prompt_ids.empty()) {
    return FieldError("prompt_ids", "found token ids, allowed in a chat: a prompt of text");
  }
  std::vector<ChatMessage> messages;
  if (system.has_value()) messages.push_back({.role = "system", .content = *system});
  messages.push_back({.role = "user", .content = request->prompt});
  return Put(messages, request);
}

}  // namespace tandem
