// What requests are held against.
#ifndef TANDEM_SERVER_API_SERVED_MODEL_H_
#define TANDEM_SERVER_API_SERVED_MODEL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tandem/chat_template.h"
#include "tandem/drafter_kind.h"
#include "tandem/engine.h"
#include "tandem/logprobs.h"
#include "tandem/reasoning.h"
#include "tandem/sampling_params.h"
#include "tandem/tokenizer.h"
#include "tandem/tool_format.h"

namespace tandem {

// How large an answer may become is told before it is begun, so that no request fills the memory.
inline constexpr int64_t kDefaultMaxAnswerBytes = int64_t{64} << 20;

// The bytes counted for a token of an answer: its text, id and provenance, and every
// log-probability with its token, escaped and byte by byte. Chats of the shipped models take 73
// bytes a log-probability; vocabularies of 128,000 have longer tokens.
inline constexpr int64_t kTokenBytes = 32;
inline constexpr int64_t kLogprobBytes = 96;

inline int64_t BytesPerToken(const LogprobOptions& logprobs) {
  return kTokenBytes + (1 + logprobs.num_top) * kLogprobBytes;
}

struct ServedModel {
  std::string name;
  const Tokenizer* tokenizer = nullptr;
  absl::StatusOr<ChatTemplate> chat_template;  // or why there is none
  // What GET /tokenizer_info answers, or why it cannot.
  absl::StatusOr<std::string> tokenizer_info = std::string();
  ToolFormat tool_format = {};  // how it calls functions
  // How it marks its reasoning, if that is taken out of answers.
  std::optional<ReasoningFormat> reasoning = {};
  std::string drafter = "none";            // of a request that names no other
  std::vector<std::string> drafters = {};  // that a request may name, beside "none"
  int context_length = 0;
  int64_t cache_tokens = 0;  // that the target's cache can hold
  // The most sequences that a request may ask for.
  int max_sequences = 1;
  // The most bytes that the answer to a request may have, as BytesPerToken counts.
  int64_t max_answer_bytes = kDefaultMaxAnswerBytes;
  SamplingParams sampling = {};  // of a request that says nothing
  std::string fingerprint = {};  // of what decides the bits of an answer
  bool is_strict = false;        // what a request has that is not known is an error

  static ServedModel Of(const Engine& engine, const std::string& name, int max_sequences,
                        int64_t max_answer_bytes = kDefaultMaxAnswerBytes);
  // Whether a conversation is put as the model was trained to read it: by a template of its own,
  // which this server knows.
  bool HasChatTemplate() const;
  // The most tokens that a sequence can have.
  int MaxLength() const;
  // The drafter that a request means by this name: "model" and "model+ngram" name a draft head,
  // too. Nothing if the server cannot run it.
  std::optional<DrafterKind> DrafterNamed(const std::string& name) const;
};

// 404 "model_not_found" unless `name` is the model's.
absl::Status CheckModelName(const std::string& name, const ServedModel& model);

}  // namespace tandem

#endif  // TANDEM_SERVER_API_SERVED_MODEL_H_
