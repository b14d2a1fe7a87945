#ifndef TANDEM_ENGINE_SESSION_H_
#define TANDEM_ENGINE_SESSION_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/time/time.h"
#include "base/instant.h"
#include "draft/drafter.h"
#include "draft/policy/acceptance_estimate.h"
#include "draft/policy/draft_plan.h"
#include "draft/prediction.h"
#include "draft/tenants.h"
#include "engine/delivery.h"
#include "engine/output_text.h"
#include "kvcache/paged_kv_cache.h"
#include "tandem/completion.h"
#include "tandem/engine.h"
#include "verify/acceptance.h"

namespace tandem {

// Takes the times of one generation. All are spans of its own wall clock: a pass that it shares
// with others counts whole for each of them. Thread-compatible.
class SessionTimes {
 public:
  explicit SessionTimes(Instant submitted = Instant::Now()) : submitted_(submitted) {}

  Instant submitted() const { return submitted_; }
  // It has a place among those that run. Only the first place counts: if a generation is
  // preempted, its later waiting belongs to the span in which that happened.
  void OnPlace(Instant now);
  // It took part in a round, whose draft and pass took so long; the pass ended at `pass_end`, and
  // read the last of the prompt if `completes`. Rounds after that one belong to the decode span.
  void OnRound(absl::Duration draft, absl::Duration pass, Instant pass_end, bool completes);
  // After a round: the drafter took `time` to read the states that the pass had left.
  void OnStatesRead(absl::Duration time) {
    if (has_read_prompt()) draft_ += time;
  }
  void OnFirstToken(Instant now) { first_token_ = now; }
  // Whether a pass has completed the prompt.
  bool has_read_prompt() const { return prompt_end_.has_value(); }

  // The times of a generation that ends at `end`. A span that has not ended lasts until then.
  Timings Until(Instant end) const;

 private:
  Instant submitted_;
  std::optional<Instant> placed_;
  std::optional<Instant> prompt_end_;
  std::optional<Instant> first_token_;
  absl::Duration draft_;   // of the decode span
  absl::Duration verify_;  // of the decode span
};

class PromptFetch;
class SessionTransfer;

// One generation in progress.
//
// Between rounds: every token in `tokens` is final, and both caches hold at most all of them but
// the last, which the next round feeds. All else a session knows is a function of `tokens`.
struct Session {
  // ---- As requested ----
  GenerationId id = 0;
  SamplingParams sampling;
  RandomSource random{0};
  AcceptanceRule rule = AcceptanceRule::kToken;
  CacheSalt salt;  // of its tenant; null for none
  int prompt_length = 0;
  int max_length = 0;        // tokens, prompt included
  bool scores_only = false;  // the prompt is read, and nothing is added
  Instant deadline = Instant::InfiniteFuture();
  absl::flat_hash_set<TokenId> stop_tokens;
  bool includes_stop = false;  // the text of a stop token is text
  LogprobOptions logprobs;
  LogprobOptions prompt_logprobs;
  DrafterKind drafter = DrafterKind::kModelAndNgram;  // what its state is for; never kAuto
  int draft_tokens = 0;                               // k, or kAutoDraftTokens
  // Whether drafts are drawn as sharply as the engine has learned; else as the request says, so
  // that a round depends on the request and its seed alone.
  bool learns_draft_temperature = false;
  std::shared_ptr<Channel> channel;  // to the callbacks; null without any

  // ---- State ----
  std::vector<TokenId> tokens;  // prompt, then committed output
  KvSequence target_kv;
  std::shared_ptr<Tenant> tenant;           // null before it runs
  std::unique_ptr<DraftState> draft_state;  // null without a drafter
  TokenHistory history;                     // of `tokens`, if `sampling` needs them
  AcceptanceEstimate acceptance;            // of this sequence's drafts
  std::vector<DraftOption> draft_options;   // for the next round, while it decodes
  std::vector<TokenId> forced;              // that the constraint leaves no choice but, next
  Prediction prediction;                    // as requested, followed along `tokens`
  Proposal proposal;                        // of the round in progress
  std::unique_ptr<OutputText> text;         // null if there is no tokenizer
  Completion completion;                    // filled as the generation goes
  bool finished = false;                    // completion.finish_reason or `status` says why
  absl::Status status;
  SessionTimes times;
  std::shared_ptr<SessionTransfer> transfer{};  // null unless its prompt's pages are to travel
  std::shared_ptr<PromptFetch> fetch{};         // pages on their way to memory; null if none are
  Instant fetch_begun;                          // when they were asked for
  int fetch_first = 0;                          // tokens that the target's cache had then
  int fetched_pages = 0;                        // of both caches, that this session has looked at
  bool is_running = false;                      // else it waits and holds no pages
  int published_pages = 0;         // of the target's, offered to the prefix index so far
  size_t delivered_text = 0;       // bytes of the text already put into the channel
  size_t delivered_tokens = 0;     // output tokens likewise
  int64_t delivered_proposed = 0;  // draft tokens verified until then
  int64_t delivered_accepted = 0;
  int num_ranked = 0;  // tokens that the draft's head has learned from

  int length() const { return static_cast<int>(tokens.size()); }
  int num_cacheable() const { return length() - 1; }
  // What the next pass may feed: of a prompt that is only scored nobody asks what follows it.
  int num_pending() const { return length() - target_kv.length() - (scores_only ? 1 : 0); }
  int num_output() const { return length() - prompt_length; }
  // Of its tenant; null where none is kept.
  TextMemory* memory() const { return tenant == nullptr ? nullptr : tenant->memory.get(); }
  TokenHistory* history_if_used() { return sampling.needs_history() ? &history : nullptr; }

  // The most tokens a draft may add now: one more is emitted after it, and all fit the length.
  int DraftRoom() const { return std::max(0, max_length - length() - 1); }

  // Whether log-probabilities of the prompt are asked for and not all reported yet.
  bool NeedsPromptLogprobs() const {
    return prompt_logprobs.num_top >= 0 &&
           static_cast<int>(completion.prompt_logprobs.size()) < prompt_length;
  }

  // Commits one output token; of the conditions that end a generation the first to fire wins.
  // False if the generation has ended with this token.
  bool Append(TokenId token, Provenance provenance);
  // What is held back of the text is let out, unless the generation is cancelled: nobody will be
  // told of it.
  void Finish(FinishReason reason);
  void Fail(absl::Status why);
  // Ends it once its prompt is read, if that is only scored.
  void EndIfScored() {
    if (scores_only && num_pending() <= 0) Finish(FinishReason::kLength);
  }
  // The output that the callbacks have not been given, which counts as delivered from now on;
  // nothing if there is none. It refers to the session. `drafter` may be null.
  std::optional<Piece> TakePiece(const Drafter* drafter);
};

}  // namespace tandem

#endif  // TANDEM_ENGINE_SESSION_H_
