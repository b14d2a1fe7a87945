#include "server/api/answer_writer.h"

#include <string_view>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "engine/report_json.h"
#include "tandem/detokenizer.h"

namespace tandem {

CacheUse CacheUse::Of(const ApiRequest& request, absl::Span<const Completion> completions) {
  CacheUse use;
  for (size_t i = 0; i < completions.size(); i += request.sequences_per_prompt()) {
    use.prompt_tokens += completions[i].prompt_tokens;
    use.memory_tokens += completions[i].memory_tokens();
    use.store_tokens += completions[i].store_tokens;
    use.transfer_tokens += completions[i].transfer_tokens;
  }
  return use;
}

JsonValue CacheUse::Details() const {
  return {{"cached_tokens", cached_tokens()},
          {"memory_tokens", memory_tokens},
          {"store_tokens", store_tokens},
          {"transfer_tokens", transfer_tokens}};
}

std::string CacheUse::Header() const {
  return absl::StrCat("memory=", memory_tokens, " store=", store_tokens,
                      " transfer=", transfer_tokens, " computed=", prompt_tokens - cached_tokens());
}

AnswerWriter::AnswerWriter(const ApiRequest* request, const ServedModel* model, AnswerStamp stamp)
    : request_(request), model_(model), stamp_(std::move(stamp)) {}

std::unique_ptr<AnswerWriter> AnswerWriter::Make(const ApiRequest* request,
                                                 const ServedModel* model, AnswerStamp stamp) {
  const auto make = request->is_message    ? MakeMessagesWriter
                    : request->is_response ? MakeResponsesWriter
                                           : MakeCompletionsWriter;
  return make(request, model, std::move(stamp));
}

std::string AnswerWriter::CallIdOf(int choice, int call) const {
  constexpr std::string_view kDigits =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  uint64_t rest = absl::HashOf(absl::StrCat(stamp_.id, "/", choice, "/", call));
  std::string id;
  for (int i = 0; i < 9; ++i, rest /= kDigits.size()) id += kDigits[rest % kDigits.size()];
  return id;
}

int64_t AnswerWriter::ReasoningTokensOf(const Completion& completion) const {
  if (!request_->reading.reasoning.has_value()) return 0;
  const auto detokenizer = Detokenizer::New(model_->tokenizer, request_->prompts.front(),
                                            request_->request.skip_special_tokens,
                                            request_->request.shown_special_tokens);
  return CountReasoningTokens(request_->reading.reasoning->splitter, detokenizer.get(),
                              completion.token_ids);
}

JsonValue AnswerWriter::ReportsOf(absl::Span<const Completion> completions) const {
  const Completion joint = JointCompletion(completions);
  const std::optional<DrafterKind>& drafter = request_->request.drafter;
  const std::string name = drafter.has_value() ? std::string(NameOf(*drafter)) : model_->drafter;
  JsonValue reports = {
      {"speculation", SpeculationJson(joint, name)},
      {"timings", TimingsJson(joint)},
      {"metrics", completions.size() == 1 ? MetricsJson(completions[0]) : nullptr}};
  const auto& transfer = completions.front().kv_transfer_params;
  if (transfer.has_value()) reports["kv_transfer_params"] = KvTransferJson(*transfer);
  return reports;
}

}  // namespace tandem
