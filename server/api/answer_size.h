// How large an answer may become, told before it is begun: nobody's request may fill the memory.
#ifndef TANDEM_SERVER_API_ANSWER_SIZE_H_
#define TANDEM_SERVER_API_ANSWER_SIZE_H_

#include <cstdint>

#include "model/sampling.h"

namespace tandem {

constexpr int64_t kDefaultMaxAnswerBytes = int64_t{64} << 20;

// What a token of an answer counts as: its text, id and provenance, and every log-probability with
// the token that it is of, escaped and byte by byte. Chats of the shipped models take 73 bytes a
// log-probability; vocabularies of 128,000 have longer tokens.
constexpr int64_t kTokenBytes = 32;
constexpr int64_t kLogprobBytes = 96;

inline int64_t BytesPerToken(const LogprobOptions& logprobs) {
  return kTokenBytes + (1 + logprobs.num_top) * kLogprobBytes;
}

}  // namespace tandem

#endif  // TANDEM_SERVER_API_ANSWER_SIZE_H_
