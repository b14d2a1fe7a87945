#ifndef TANDEM_SERVER_API_ANSWER_WRITER_H_
#define TANDEM_SERVER_API_ANSWER_WRITER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "server/api/api_request.h"
#include "server/api/served_model.h"
#include "tandem/engine.h"
#include "tandem/json_value.h"
#include "tandem/owned_piece.h"

namespace tandem {

// What tells an answer from others.
struct AnswerStamp {
  std::string id;
  int64_t created = 0;  // seconds since 1970
};

// The header that says what CacheUse::Header says.
inline constexpr char kCacheHeader[] = "x-tandem-cache";

// Where the tokens of a request's prompts came from. A prompt counts once, however many sequences
// it has.
struct CacheUse {
  int64_t prompt_tokens = 0;
  int64_t memory_tokens = 0;
  int64_t store_tokens = 0;     // EngineOptions::kv_store
  int64_t transfer_tokens = 0;  // EngineOptions::kv_transfer

  static CacheUse Of(const ApiRequest& request, absl::Span<const Completion> completions);

  int64_t cached_tokens() const { return memory_tokens + store_tokens + transfer_tokens; }
  // The object `prompt_tokens_details`.
  JsonValue Details() const;
  // "memory=1488 store=512 transfer=0 computed=34".
  std::string Header() const;
};

// Writes what answers one request: JSON for the whole, or server-sent events as they go over the
// wire. Thread-compatible.
class AnswerWriter {
 public:
  // The kind that the request wants. Both must outlive it.
  static std::unique_ptr<AnswerWriter> Make(const ApiRequest* request, const ServedModel* model,
                                            AnswerStamp stamp);
  virtual ~AnswerWriter() = default;

  // `completions`: by sequence, prompt after prompt.
  virtual std::string Whole(absl::Span<const Completion> completions) = 0;

  // The events that open a stream, and those that one piece of sequence `choice` adds.
  virtual std::string FirstEvents() = 0;
  virtual std::string PieceEvents(int choice, const OwnedPiece& piece) = 0;
  // The end of a sequence. With the stream's last one `completions` has all, else it is empty.
  virtual std::string EndEvents(int choice, FinishReason reason,
                                absl::Span<const Completion> completions) = 0;
  // The events that close the stream, after the last sequence's end.
  virtual std::string LastEvents(absl::Span<const Completion> completions) = 0;
  // What closes it when the request has failed.
  virtual std::string ErrorEvents(const absl::Status& status) = 0;

 protected:
  AnswerWriter(const ApiRequest* request, const ServedModel* model, AnswerStamp stamp);

  // The id of one of a sequence's calls: nine letters and digits, which is the only form that
  // templates of Mistral's take.
  std::string CallIdOf(int choice, int call) const;
  // The tokens of a sequence's reasoning; 0 if the request does not take that out of the text.
  int64_t ReasoningTokensOf(const Completion& completion) const;
  // An answer's members "speculation", "timings" and, where pages are kept for another worker,
  // "kv_transfer_params".
  JsonValue ReportsOf(absl::Span<const Completion> completions) const;

  const ApiRequest* const request_;
  const ServedModel* const model_;
  const AnswerStamp stamp_;
};

// Answers to POST /v1/completions and /v1/chat/completions.
std::unique_ptr<AnswerWriter> MakeCompletionsWriter(const ApiRequest* request,
                                                    const ServedModel* model, AnswerStamp stamp);
// Answers to POST /v1/responses.
std::unique_ptr<AnswerWriter> MakeResponsesWriter(const ApiRequest* request,
                                                  const ServedModel* model, AnswerStamp stamp);

}  // namespace tandem

#endif  // TANDEM_SERVER_API_ANSWER_WRITER_H_
