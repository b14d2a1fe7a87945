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
#include "tandem/owned_piece.h"

namespace tandem {

// What tells an answer from others.
struct AnswerStamp {
  std::string id;
  int64_t created = 0;  // seconds since 1970
};

// The id of one of a sequence's calls: nine letters and digits, which is the only form that
// templates of Mistral's take.
std::string CallIdOf(const AnswerStamp& stamp, int choice, int call);

// The tokens of a sequence's reasoning; 0 if the request does not take that out of the text.
int64_t ReasoningTokensOf(const ApiRequest& request, const ServedModel& model,
                          const Completion& completion);

// Writes what answers one request: JSON for the whole, or server-sent events as they go over the
// wire. Thread-compatible.
class AnswerWriter {
 public:
  // Of the kind that the request wants. Both must outlive it.
  static std::unique_ptr<AnswerWriter> Make(const ApiRequest* request, const ServedModel* model,
                                            AnswerStamp stamp);
  virtual ~AnswerWriter() = default;

  // `completions`: by sequence, prompt after prompt.
  virtual std::string Whole(absl::Span<const Completion> completions) = 0;

  // What opens a stream; what one piece of sequence `choice` adds.
  virtual std::string FirstEvents() = 0;
  virtual std::string PieceEvents(int choice, const OwnedPiece& piece) = 0;
  // The end of a sequence. With the stream's last one `completions` has all, else it is empty.
  virtual std::string EndEvents(int choice, FinishReason reason,
                                absl::Span<const Completion> completions) = 0;
  // What closes the stream, behind the last sequence's end.
  virtual std::string LastEvents(absl::Span<const Completion> completions) = 0;
  // What closes it when the request has failed.
  virtual std::string ErrorEvents(const absl::Status& status) = 0;
};

}  // namespace tandem

#endif  // TANDEM_SERVER_API_ANSWER_WRITER_H_
