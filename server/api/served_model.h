// The model that requests are checked against.
#ifndef TANDEM_SERVER_API_SERVED_MODEL_H_
#define TANDEM_SERVER_API_SERVED_MODEL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tandem/chat_template.h"
#include "tandem/drafter_kind.h"
#include "tandem/engine.h"
#include "tandem/logprobs.h"
#include "tandem/reasoning.h"
#include "tandem/sampling_params.h"
#include "tandem/tokenizer.h"
#include "tandem/tool_format.h"

namespace tandem {

// Answers have a size limit that is checked before they begin, so that no request fills the memory.
inline constexpr int64_t kDefaultMaxAnswerBytes = int64_t{64} << 20;

// The bytes counted for one token of an answer: its text, id and provenance, and each
// log-probability with its token, both escaped and byte by byte. Chats of the shipped models use 73
// bytes for each log-probability; vocabularies of 128,000 have longer tokens.
inline constexpr int64_t kTokenBytes = 32;
inline constexpr int64_t kLogprobBytes = 96;

inline int64_t BytesPerToken(const LogprobOptions& logprobs) {
  return kTokenBytes + (1 + logprobs.num_top) * kLogprobBytes;
}

struct ServedModel {
  std::string name;
  const Tokenizer* tokenizer = nullptr;
  absl::StatusOr<ChatTemplate> chat_template;  // or why it cannot be used
  // The answer to GET /tokenizer_info, or why there is none.
  absl::StatusOr<std::string> tokenizer_info = std::string();
  ToolFormat tool_format = {};                    // of its tool calls
  std::optional<ReasoningFormat> reasoning = {};  // how it marks its reasoning
  bool splits_reasoning = true;                   // whether answers have reasoning separately
  std::string drafter = "none";                   // default drafter of a request
  std::vector<std::string> drafters = {};         // that a request may name, in addition to "none"
  bool parallel_draft = false;                    // whether the draft model drafts in one pass
  int context_length = 0;
  int64_t cache_tokens = 0;  // capacity of the target's cache
  // The maximum number of sequences of one request.
  int max_sequences = 1;
  // The maximum size of the answer to one request, as counted by BytesPerToken.
  int64_t max_answer_bytes = kDefaultMaxAnswerBytes;
  SamplingParams sampling = {};  // defaults of a request
  std::string fingerprint = {};  // of everything that decides the bits of an answer
  bool is_strict = false;        // unknown fields of a request are errors

  static ServedModel Of(const Engine& engine, const std::string& name, int max_sequences,
                        int64_t max_answer_bytes = kDefaultMaxAnswerBytes);
  // Returns whether the model has a chat template of its own that this server can use.
  bool HasChatTemplate() const;
  // Returns the maximum number of tokens of a sequence.
  int MaxLength() const;
  // Returns the drafter that a request means by `name`: "model" and "model+ngram" stand for a draft
  // head, too. Empty if the server cannot run it.
  std::optional<DrafterKind> DrafterNamed(const std::string& name) const;
};

// 404 "model_not_found": `allowed` are the names of the served models.
absl::Status NoSuchModel(const std::string& name, absl::string_view allowed);
// Returns NoSuchModel unless `name` is the model's.
absl::Status CheckModelName(const std::string& name, const ServedModel& model);

}  // namespace tandem

#endif  // TANDEM_SERVER_API_SERVED_MODEL_H_
