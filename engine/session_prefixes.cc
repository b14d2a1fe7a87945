#include "engine/session_prefixes.h"

#include <utility>

namespace tandem {

absl::Span<const TokenId> SessionPrefixes::Reusable(const Session& session) const {
  if (!options_.prefix_cache || session.NeedsPromptLogprobs()) return {};
  return session.tokens;
}

KvSequence SessionPrefixes::Find(const Session& session) const {
  return runtime_.target_cache->NewSequenceWithPrefix(
      Reusable(session), runtime_.target->cache_variant(session.max_length), session.salt);
}

void SessionPrefixes::Begin(Session* session, KvSequence found) {
  if (session->completion.num_preemptions == 0) num_prompt_tokens_ += session->prompt_length;
  num_queries_ += static_cast<int64_t>(Reusable(*session).size());
  Take(session, std::move(found));
}

int SessionPrefixes::Take(Session* session, KvSequence found) {
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

void SessionPrefixes::Publish(Session* session) const {
  const int full_pages = session->target_kv.length() / options_.page_size;
  if (full_pages <= session->published_pages) return;
  DraftState* const state = session->draft_state.get();
  if (state != nullptr && !runtime_.drafter->HoldsFullPages(*state, session->target_kv)) return;
  session->published_pages = full_pages;
  runtime_.target_cache->Publish(session->tokens, &session->target_kv);
  if (state != nullptr) runtime_.drafter->Publish(state, session->tokens);
}

void SessionPrefixes::Count(EngineLoad* load) const {
  load->prompt_tokens = num_prompt_tokens_;
  load->prefix_queries = num_queries_;
  load->prefix_hits = num_hits_;
  load->draft_prefix_hits = num_draft_hits_;
}

}  // namespace tandem
