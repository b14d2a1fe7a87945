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

// Identifies an answer.
struct AnswerStamp {
  std::string id;
  int64_t created = 0;  // seconds since 1970
};

// The header whose value is CacheUse::Header().
inline constexpr char kCacheHeader[] = "x-tandem-cache";

// The sources of a request's prompt tokens. A prompt counts once, however many sequences it has.
struct CacheUse {
  int64_t prompt_tokens = 0;
  int64_t memory_tokens = 0;
  int64_t store_tokens = 0;     // EngineOptions::kv_store
  int64_t transfer_tokens = 0;  // EngineOptions::kv_transfer

  static CacheUse Of(const ApiRequest& request, absl::Span<const Completion> completions);

  int64_t cached_tokens() const { return memory_tokens + store_tokens + transfer_tokens; }
  // Returns the object `prompt_tokens_details`.
  JsonValue Details() const;
  // Returns for example "memory=1488 store=512 transfer=0 computed=34".
  std::string Header() const;
};

// Writes the answer to one request, as one JSON document or as server-sent events in their wire
// format. Thread-compatible.
class AnswerWriter {
 public:
  // Makes the writer for the request's endpoint. `request` and `model` must outlive it.
  static std::unique_ptr<AnswerWriter> Make(const ApiRequest* request, const ServedModel* model,
                                            AnswerStamp stamp);
  virtual ~AnswerWriter() = default;

  // Returns the whole answer. `completions`: in the order of the sequences, prompt after prompt.
  virtual std::string FullAnswer(absl::Span<const Completion> completions) = 0;

  // The events that open a stream, and those for one piece of sequence `choice`.
  virtual std::string FirstEvents() = 0;
  virtual std::string PieceEvents(int choice, const OwnedPiece& piece) = 0;
  // The events that end a sequence. `completions` has all completions for the last sequence of the
  // stream, and is empty for the others.
  virtual std::string EndEvents(int choice, FinishReason reason,
                                absl::Span<const Completion> completions) = 0;
  // The events that close the stream, after the last sequence's end.
  virtual std::string LastEvents(absl::Span<const Completion> completions) = 0;
  // The events that close the stream after the request has failed.
  virtual std::string ErrorEvents(const absl::Status& status) = 0;

 protected:
  AnswerWriter(const ApiRequest* request, const ServedModel* model, AnswerStamp stamp);

  // Returns the id of one of a sequence's tool calls: nine letters and digits, the only form that
  // Mistral's templates accept.
  std::string CallIdOf(int choice, int call) const;
  // Counts the reasoning tokens of a sequence; 0 if the request does not separate reasoning from
  // the text.
  int64_t ReasoningTokensOf(const Completion& completion) const;
  // Returns the answer's members "speculation", "timings", vLLM's "metrics" (null for several
  // sequences) and, if pages are kept for another worker, "kv_transfer_params".
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
// Answers to POST /v1/messages.
std::unique_ptr<AnswerWriter> MakeMessagesWriter(const ApiRequest* request,
                                                 const ServedModel* model, AnswerStamp stamp);

}  // namespace tandem

#endif  // TANDEM_SERVER_API_ANSWER_WRITER_H_
