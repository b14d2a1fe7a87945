#include "tools/chat_format.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "tandem/chat_answer.h"
#include "tandem/field_error.h"

namespace tandem {

absl::StatusOr<ChatFormat> ChatFormat::Load(const std::string& path, const Tokenizer* tokenizer) {
  ASSIGN_OR_RETURN(ChatTemplate chat_template, ChatTemplate::Load(path));
  if (chat_template.is_plain()) {
    return absl::UnimplementedError(absl::StrCat(
        path,
        ": has no chat template, so it cannot hold a conversation (`tandem fetch` lists "
        "some that are)"));
  }
  return ChatFormat(tokenizer, std::move(chat_template));
}

absl::StatusOr<AnswerReader::Options> ChatFormat::Put(ChatInput input, Request* request) const {
  input.now = absl::Now();
  ASSIGN_OR_RETURN(request->prompt_ids, EncodeChat(template_, *tokenizer_, input));
  request->prompt.clear();
  ASSIGN_OR_RETURN(ChatAnswer answer,
                   ChatAnswer::Of(template_, *tokenizer_, input, request->prompt_ids,
                                  request->constraint.has_value()));
  request->shown_special_tokens = std::move(answer.shown_special_tokens);
  if (answer.constraint.has_value()) request->constraint = std::move(answer.constraint);
  if (!request->ignore_eos) {
    const std::vector<TokenId> ends = EndTokenIds(template_, *tokenizer_);
    request->stop_tokens.insert(request->stop_tokens.end(), ends.begin(), ends.end());
  }
  return std::move(answer.reading);
}

absl::StatusOr<AnswerReader::Options> ChatFormat::PutTurn(const Turn& turn,
                                                          Request* request) const {
  if (!request->prompt_ids.empty()) {
    return FieldError("prompt_ids", "found token ids, allowed in a chat: a prompt of text");
  }
  ChatInput input;
  if (turn.system.has_value()) {
    input.messages.push_back({{"role", "system"}, {"content", *turn.system}});
  }
  input.messages.push_back({{"role", "user"}, {"content", request->prompt}});
  input.tools = turn.tools;
  return Put(std::move(input), request);
}

}  // namespace tandem
