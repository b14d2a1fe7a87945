#ifndef TANDEM_SERVER_API_RESPONSES_WRITER_H_
#define TANDEM_SERVER_API_RESPONSES_WRITER_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "server/api/answer_writer.h"
#include "tandem/answer_reader.h"
#include "tandem/json_value.h"

namespace tandem {

// Answers to POST /v1/responses: what the model thought, said and called, in items of their own, in
// the order in which they came. An answer of nothing is a message of nothing.
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
  enum class Kind { kReasoning, kMessage, kCall };
  struct Item {
    Kind kind = Kind::kMessage;
    std::string id{};
    std::string text{};  // of a call, its arguments
    std::string name{};  // of a call, as its id
    std::string call_id{};
    const char* status = "in_progress";
    size_t num_told = 0;  // bytes of the text that were in events
  };

  // These write what they change to the end of `events`.
  void TakeText(std::string_view text, std::string* events);
  void TakeEnd(FinishReason reason, std::string* events);
  void Take(const AnswerDelta& delta, std::string* events);
  // The item that text of this kind belongs to: the last one, or a new one.
  Item& ItemOf(Kind kind, std::string* events);
  Item& Begin(Kind kind, std::string* events);
  void Tell(std::string* events);  // the text that has not been told
  void EndLast(const char* status, std::string* events);

  // The response as it stands; without a completion it is in progress.
  JsonValue ResponseJson(const Completion* completion) const;
  static JsonValue ItemJson(const Item& item);
  // The part that an item's text is; null of a call.
  static JsonValue PartJson(const Item& item, const std::string& text);
  // "event: TYPE\ndata: {...}\n\n", numbered.
  std::string EventOf(std::string_view type, JsonValue members);
  // An event about the last item, or about its text.
  std::string ItemEventOf(std::string_view type);
  std::string TextEventOf(std::string_view type, JsonValue members);

  const ApiRequest* request_;
  const ServedModel* model_;
  const AnswerStamp stamp_;
  AnswerReader reader_;
  std::vector<Item> items_{};
  int num_calls_ = 0;
  int num_events_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_SERVER_API_RESPONSES_WRITER_H_
