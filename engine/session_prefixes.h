#ifndef TANDEM_ENGINE_SESSION_PREFIXES_H_
#define TANDEM_ENGINE_SESSION_PREFIXES_H_

#include <cstdint>

#include "absl/types/span.h"
#include "engine/runtime.h"
#include "engine/session.h"
#include "kvcache/kv_sequence.h"
#include "tandem/engine.h"

namespace tandem {

// The prefix caches as sessions use them, and counts of hits. Thread-compatible.
class SessionPrefixes {
 public:
  // Both must outlive it.
  SessionPrefixes(const EngineOptions* options, Runtime* runtime)
      : options_(*options), runtime_(*runtime) {}

  // The tokens of the session that may come from the prefix cache: none while log-probabilities of
  // the prompt are wanted, which need its rows computed.
  absl::Span<const TokenId> Reusable(const Session& session) const;
  // The longest published beginning of these.
  KvSequence Find(const Session& session) const;
  // Gives a session its first sequence, `found`.
  void Begin(Session* session, KvSequence found);
  // Replaces the session's sequence by `found` if that is longer, and lets its drafter follow.
  // Returns the number of tokens that the target's gained.
  int Take(Session* session, KvSequence found);
  // Offers the full pages that a round has added to sessions that begin with the same tokens.
  void Publish(Session* session) const;

  // Fills in the counts.
  void Count(EngineLoad* load) const;

 private:
  const EngineOptions& options_;
  Runtime& runtime_;
  int64_t num_prompt_tokens_ = 0;
  int64_t num_queries_ = 0;
  int64_t num_hits_ = 0;
  int64_t num_draft_hits_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_ENGINE_SESSION_PREFIXES_H_
