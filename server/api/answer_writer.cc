#include "server/api/answer_writer.h"

#include <string_view>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "server/api/completions_writer.h"
#include "server/api/responses_writer.h"
#include "tandem/detokenizer.h"

namespace tandem {

std::string CallIdOf(const AnswerStamp& stamp, int choice, int call) {
  constexpr std::string_view kDigits =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  uint64_t rest = absl::HashOf(absl::StrCat(stamp.id, "/", choice, "/", call));
  std::string id;
  for (int i = 0; i < 9; ++i, rest /= kDigits.size()) id += kDigits[rest % kDigits.size()];
  return id;
}

int64_t ReasoningTokensOf(const ApiRequest& request, const ServedModel& model,
                          const Completion& completion) {
  if (!request.reading.reasoning.has_value()) return 0;
  const auto detokenizer =
      Detokenizer::New(model.tokenizer, request.prompts.front(),
                       request.request.skip_special_tokens, request.request.shown_special_tokens);
  return CountReasoningTokens(request.reading.reasoning->splitter, detokenizer.get(),
                              completion.token_ids);
}

std::unique_ptr<AnswerWriter> AnswerWriter::Make(const ApiRequest* request,
                                                 const ServedModel* model, AnswerStamp stamp) {
  if (request->is_response) {
    return std::make_unique<ResponsesWriter>(request, model, std::move(stamp));
  }
  return std::make_unique<CompletionsWriter>(request, model, std::move(stamp));
}

}  // namespace tandem
