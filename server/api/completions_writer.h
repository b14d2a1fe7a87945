#ifndef TANDEM_SERVER_API_COMPLETIONS_WRITER_H_
#define TANDEM_SERVER_API_COMPLETIONS_WRITER_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "json/json_writer.h"
#include "server/api/answer_writer.h"
#include "tandem/answer_reader.h"
#include "tandem/detokenizer.h"
#include "tandem/json_value.h"
#include "tandem/tokenizer.h"

namespace tandem {

// Answers to POST /v1/completions and /v1/chat/completions.
class CompletionsWriter final : public AnswerWriter {
 public:
  // Both must outlive it.
  CompletionsWriter(const ApiRequest* request, const ServedModel* model, AnswerStamp stamp);

  std::string Whole(absl::Span<const Completion> completions) override;
  std::string FirstEvents() override;
  std::string PieceEvents(int choice, const OwnedPiece& piece) override;
  std::string EndEvents(int choice, FinishReason reason,
                        absl::Span<const Completion> completions) override;
  std::string LastEvents(absl::Span<const Completion> completions) override;
  std::string ErrorEvents(const absl::Status& status) override;

 private:
  // What opens choice `choice` in a stream: a chat's role, an echoed prompt. Empty if nothing does.
  std::string FirstChunk(int choice);
  std::string Chunk(int choice, const OwnedPiece& piece);
  // The last of a choice. Of the stream's last choice it has what is known of all, `completions`;
  // of others that is empty.
  std::string EndChunk(int choice, FinishReason finish_reason,
                       absl::Span<const Completion> completions);
  // The chunk behind it with `stream_options.include_usage`.
  std::string UsageChunk(absl::Span<const Completion> completions) const;

  // Where a choice's text has got to, for the places of log-probabilities.
  struct Progress {
    std::unique_ptr<Detokenizer> detokenizer;
    int num_characters = 0;
    std::unique_ptr<Detokenizer> token_texts{};  // likewise, for include_token_texts
    std::optional<AnswerReader> reader{};        // of a stream with more than content
  };
  // A token that was asked about; the first of a prompt has no log-probability, but null.
  struct Row {
    TokenId id = 0;
    const TokenLogprobs* logprobs = nullptr;
  };

  // These write members of the object that is open.
  void AddEnvelope(bool is_chunk, JsonWriter* json) const;
  void AddText(std::string_view text, JsonWriter* json) const;                  // of a chunk
  void AddDelta(int choice, const AnswerDelta& delta, JsonWriter* json) const;  // likewise
  void AddTokens(absl::Span<const TokenId> ids, std::string_view provenance,
                 JsonWriter* json) const;
  void AddTokenTexts(int choice, absl::Span<const TokenId> ids, JsonWriter* json);
  void AddLogprobs(int choice, absl::Span<const Row> rows, JsonWriter* json);
  void AddReports(absl::Span<const Completion> completions, JsonWriter* json) const;
  // Opens a chunk and its choice, whose members come next.
  void BeginChunk(int choice, const std::string& finish_reason, JsonWriter* json) const;
  // Ends the choice; the chunk's other members come next.
  void EndChoices(JsonWriter* json) const;

  // A message's "tool_calls", or in a chunk what is added to them.
  JsonValue CallsJson(int choice, const AnswerDelta& delta, bool is_chunk) const;
  void WriteMessage(int choice, const Completion& completion, JsonWriter* json) const;
  void WriteChoice(int choice, const Completion& completion, JsonWriter* json);
  void WriteChatLogprobs(absl::Span<const Row> rows, JsonWriter* json) const;
  void WriteCompletionLogprobs(Progress* progress, absl::Span<const Row> rows,
                               JsonWriter* json) const;
  void WriteTopLogprobs(const TokenLogprobs* logprobs, JsonWriter* json) const;

  void WritePromptLogprobs(int choice, const Completion& completion, JsonWriter* json) const;

  std::vector<int> BestOf(absl::Span<const Completion> completions) const;
  std::unique_ptr<Detokenizer> NewDetokenizer(absl::Span<const TokenId> before) const;
  JsonValue UsageOf(absl::Span<const Completion> completions) const;
  // Of the whole answer's choice, echoed prompts first.
  std::vector<Row> RowsOf(int choice, const Completion& completion) const;
  const std::vector<TokenId>& PromptOf(int choice) const;
  std::string PromptText(int choice) const;
  std::string TokenText(TokenId id) const;

  const ApiRequest* request_;
  const ServedModel* model_;
  AnswerStamp stamp_;
  std::vector<Progress> progress_;  // by choice
};

}  // namespace tandem

#endif  // TANDEM_SERVER_API_COMPLETIONS_WRITER_H_
