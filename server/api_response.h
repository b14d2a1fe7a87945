#ifndef TANDEM_SERVER_API_RESPONSE_H_
#define TANDEM_SERVER_API_RESPONSE_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "engine/engine.h"
#include "engine/owned_piece.h"
#include "model/tokenizer/detokenizer.h"
#include "model/tokenizer/tokenizer.h"
#include "nlohmann/json.hpp"
#include "server/api_request.h"

namespace tandem {

// Makes the JSON that answers one request, whole or in chunks. Thread-compatible.
class ApiResponse {
 public:
  // Both must outlive it. `id` and `created` (seconds since 1970) are of this answer.
  ApiResponse(const ApiRequest* request, const ServedModel* model, std::string id, int64_t created);

  // The whole answer. `completions`: by choice, prompt after prompt.
  nlohmann::json Whole(absl::Span<const Completion> completions);

  // What opens choice `choice` in a stream: a chat's role, an echoed prompt. Null if nothing does.
  nlohmann::json FirstChunk(int choice);
  nlohmann::json Chunk(int choice, const OwnedPiece& piece);
  // The last of a choice.
  nlohmann::json EndChunk(int choice, std::string_view finish_reason);
  // Adds to the chunk that ends the stream's last choice what is known of all.
  void AddReports(absl::Span<const Completion> completions, nlohmann::json* chunk) const;
  // The chunk behind it with `stream_options.include_usage`.
  nlohmann::json UsageChunk(absl::Span<const Completion> completions) const;

 private:
  // Where a choice's text has got to, for the places of log-probabilities.
  struct Progress {
    std::unique_ptr<Detokenizer> detokenizer;
    int num_characters = 0;
    std::unique_ptr<Detokenizer> token_texts{};  // likewise, for include_token_texts
  };

  nlohmann::json Envelope(bool is_chunk) const;
  nlohmann::json UsageOf(absl::Span<const Completion> completions) const;
  nlohmann::json ChoiceOf(int choice, const Completion& completion);
  nlohmann::json ChunkChoice(int choice, std::string_view text) const;
  nlohmann::json TokenTextsOf(int choice, absl::Span<const TokenId> ids);
  nlohmann::json LogprobsOf(int choice, absl::Span<const TokenLogprobs> logprobs);
  nlohmann::json CompletionLogprobs(Progress* progress,
                                    absl::Span<const TokenLogprobs> logprobs) const;
  nlohmann::json ChatLogprobs(absl::Span<const TokenLogprobs> logprobs) const;
  std::string PromptText(int choice) const;
  std::string TokenText(TokenId id) const;

  const ApiRequest* request_;
  const ServedModel* model_;
  std::string id_;
  int64_t created_;
  std::vector<Progress> progress_;  // by choice
};

}  // namespace tandem

#endif  // TANDEM_SERVER_API_RESPONSE_H_
