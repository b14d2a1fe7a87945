#ifndef TANDEM_SERVER_RESPONSES_WRITER_H_
#define TANDEM_SERVER_RESPONSES_WRITER_H_

#include <optional>
#include <string>
#include <string_view>

#include "absl/types/span.h"
#include "model/formats/json_value.h"
#include "server/answer_writer.h"

namespace tandem {

// Answers to POST /v1/responses: one message of one text.
class ResponsesWriter final : public AnswerWriter {
 public:
  // Both must outlive it.
  ResponsesWriter(const ApiRequest* request, const ServedModel* model, AnswerStamp stamp);

  std::string Whole(absl::Span<const Completion> completions) override;
  std::string FirstEvents() override;
  std::string PieceEvents(int choice, const OwnedPiece& piece) override;
  std::string EndEvents(int choice, FinishReason reason,
                        absl::Span<const Completion> completions) override;
  std::string LastEvents(absl::Span<const Completion> completions) override;
  std::string ErrorEvents(const absl::Status& status) override;

 private:
  // The response as it stands; without a completion it is in progress.
  JsonValue ResponseJson(const Completion* completion) const;
  JsonValue ItemJson(const Completion* completion) const;
  // "event: TYPE\ndata: {...}\n\n", numbered.
  std::string EventOf(std::string_view type, JsonValue members);
  // An event about the text, with its place in the response.
  std::string TextEventOf(std::string_view type, JsonValue members);

  const ApiRequest* request_;
  const ServedModel* model_;
  const AnswerStamp stamp_;
  const std::string item_id_;
  int num_events_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_SERVER_RESPONSES_WRITER_H_
