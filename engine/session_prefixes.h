#ifndef TANDEM_ENGINE_SESSION_PREFIXES_H_
#define TANDEM_ENGINE_SESSION_PREFIXES_H_

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/types/span.h"
#include "draft/drafter.h"
#include "engine/runtime.h"
#include "engine/session.h"
#include "kvcache/kv_sequence.h"
#include "tandem/engine_load.h"
#include "tandem/engine_options.h"

namespace tandem {

// Connects sessions to the prefix caches and counts hits. Thread-compatible.
class SessionPrefixes {
 public:
  // Both must outlive this object.
  SessionPrefixes(const EngineOptions* options, Runtime* runtime)
      : options_(*options), runtime_(*runtime) {}

  // The session's tokens that may come from the prefix cache. Empty while log-probabilities of the
  // prompt are still to be reported, because those need its rows computed.
  absl::Span<const TokenId> Reusable(const Session& session) const {
    if (!options_.prefix_cache || session.NeedsPromptLogprobs()) return {};
    return session.tokens;
  }
  // The longest published prefix of Reusable(session).
  KvSequence Find(const Session& session) const {
    int length = session.max_length;
    if (session.choices != nullptr) {  // all are read to their ends, whatever max_length
      length = std::max(length, session.prompt_length + session.choices->MaxLength());
    }
    return runtime_.target_cache->NewSequenceWithPrefix(
        Reusable(session), runtime_.target->cache_variant(length), session.salt);
  }
  // Starts a session with the sequence `found`.
  void Begin(Session* session, KvSequence found) {
    if (session->completion.num_preemptions == 0) num_prompt_tokens_ += session->prompt_length;
    num_queries_ += static_cast<int64_t>(Reusable(*session).size());
    Take(session, std::move(found));
  }
  // Replaces the session's sequence with `found` if that is longer, and lets its drafter catch up.
  // Returns the number of tokens that the target's sequence gained.
  int Take(Session* session, KvSequence found) {
    if (found.length() < session->target_kv.length()) found = session->target_kv.Fork();
    const int num_reused = found.length() - session->target_kv.length();
    session->target_kv = std::move(found);
    num_hits_ += num_reused;
    if (session->completion.num_preemptions == 0) session->completion.cached_tokens += num_reused;
    session->EndIfScored();
    if (session->draft_state == nullptr) return num_reused;
    Drafter& drafter = *runtime_.drafter;
    num_draft_hits_ -= drafter.NumCached(*session->draft_state);
    drafter.AdoptLongerPrefix(session->draft_state.get(), Reusable(*session), session->target_kv);
    num_draft_hits_ += drafter.NumCached(*session->draft_state);
    return num_reused;
  }
  // Publishes the full pages that a round has added, for sessions that begin with the same tokens.
  void Publish(Session* session) const {
    const int full_pages = session->target_kv.length() / options_.page_size;
    if (full_pages <= session->published_pages) return;
    DraftState* const state = session->draft_state.get();
    if (state != nullptr && !runtime_.drafter->HoldsFullPages(*state, session->target_kv)) return;
    session->published_pages = full_pages;
    runtime_.target_cache->Publish(session->tokens, &session->target_kv);
    if (state != nullptr) runtime_.drafter->Publish(state, session->tokens);
  }

  // Fills in the counts.
  void Count(EngineLoad* load) const {
    load->prompt_tokens = num_prompt_tokens_;
    load->prefix_queries = num_queries_;
    load->prefix_hits = num_hits_;
    load->draft_prefix_hits = num_draft_hits_;
  }

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
