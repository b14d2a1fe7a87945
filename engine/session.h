#ifndef TANDEM_ENGINE_SESSION_H_
#define TANDEM_ENGINE_SESSION_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/hash_map.h"
#include "base/instant.h"
#include "draft/drafter.h"
#include "draft/policy/acceptance_estimate.h"
#include "draft/policy/draft_plan.h"
#include "draft/prediction.h"
#include "draft/tenants.h"
#include "engine/clients.h"
#include "engine/delivery.h"
#include "engine/output_text.h"
#include "engine/page_fetch.h"
#include "kvcache/paged_kv_cache.h"
#include "tandem/completion.h"
#include "tandem/generation_id.h"
#include "verify/acceptance.h"
#include "verify/choice_scores.h"

namespace tandem {

// Measures the times of one generation. All are spans of its wall-clock time: a pass that several
// generations share counts in full for each of them. Thread-compatible.
class SessionTimes {
 public:
  explicit SessionTimes(Instant submitted = Instant::Now()) : submitted_(submitted) {}

  Instant submitted() const { return submitted_; }
  // The generation was admitted. Only the first time counts: if it is preempted, its later waiting
  // belongs to the span in which that happened.
  void OnPlace(Instant now);
  // The generation took part in a round whose draft and pass took this long. The pass ended at
  // `pass_end`; `completes`: it read the last of the prompt. Rounds after that one belong to the
  // decode span.
  void OnRound(absl::Duration draft, absl::Duration pass, Instant pass_end, bool completes);
  // After a round, the drafter took `time` to read the states that the pass computed.
  void OnStatesRead(absl::Duration time) {
    if (has_read_prompt()) draft_ += time;
  }
  void OnFirstToken(Instant now) { first_token_ = now; }
  // Whether a pass has completed the prompt.
  bool has_read_prompt() const { return prompt_end_.has_value(); }

  // Returns the times of a generation that ends at `end`. Unfinished spans end at `end`.
  Timings Until(Instant end) const;

 private:
  Instant submitted_;
  std::optional<Instant> placed_;
  std::optional<Instant> prompt_end_;
  std::optional<Instant> first_token_;
  absl::Duration draft_;   // of the decode span
  absl::Duration verify_;  // of the decode span
};

// One generation in progress.
//
// Between rounds every token in `tokens` is final, and both caches hold at most all of them except
// the last, which the next round feeds. All other state is a function of `tokens`.
struct Session {
  // ---- As requested ----
  GenerationId id = 0;
  SamplingParams sampling;
  std::optional<SamplingParams> free_sampling;  // without the thinking budget, if there is one
  RandomSource random{0};
  AcceptanceRule rule = AcceptanceRule::kToken;
  CacheSalt salt;  // of its tenant; null without one
  std::string client_name;
  int prompt_length = 0;
  int max_length = 0;  // tokens, including the prompt
  // Only reads the prompt. Generates nothing, or the choice that `choices` draws.
  bool scores_only = false;
  Instant deadline = Instant::InfiniteFuture();
  HashSet<TokenId> stop_tokens;
  bool includes_stop = false;  // the text includes a stop token's text
  LogprobOptions logprobs;
  LogprobOptions prompt_logprobs;
  bool reports_prompt = false;                        // Request::prompt_progress
  DrafterKind drafter = DrafterKind::kModelAndNgram;  // never kAuto
  int draft_tokens = 0;                               // k, or kAutoDraftTokens
  // Whether drafts are sampled at a temperature that the engine has learned. If not, they use the
  // request's, so that a round depends only on the request and its seed.
  bool learns_draft_temperature = false;
  std::shared_ptr<Channel> channel;  // to the callbacks; null without callbacks

  // ---- State ----
  std::vector<TokenId> tokens;  // prompt, then committed output
  KvSequence target_kv;
  std::shared_ptr<Tenant> tenant;           // null before it runs
  std::shared_ptr<EngineClient> client;     // null before the engine's thread has it
  std::unique_ptr<DraftState> draft_state;  // null without a drafter
  TokenHistory history;                     // of `tokens`, if `sampling` needs it
  AcceptanceEstimate acceptance;            // of this sequence's drafts
  double lost = 0.0;  // by drafts from texts, in plain passes (RoundCosts::LossOf)
  std::vector<DraftOption> draft_options;      // for the next round, while it decodes
  std::vector<TokenId> forced;                 // the next tokens, forced by the constraint
  Prediction prediction;                       // the request's prediction, aligned with `tokens`
  std::unique_ptr<ChoiceScores> choices;       // with ChoiceLaw::kConditional
  Proposal proposal;                           // of the round in progress
  std::unique_ptr<OutputText> text;            // null without a tokenizer
  Completion completion;                       // filled during the generation
  std::vector<std::vector<TokenId>> rejected;  // as Piece::rejected, of the whole generation
  bool finished = false;                       // completion.finish_reason or `status` says why
  absl::Status status;
  SessionTimes times;
  PageFetch fetch;
  bool is_running = false;         // else it waits and holds no pages
  bool was_admitted = false;       // also if it was preempted since
  absl::Duration constraint_work;  // of its constraint, counted so far
  absl::Duration constraint_debt;  // see ShareConstraintTime
  bool sits_out = false;           // until its constraint's debt is paid
  int published_pages = 0;         // pages of the target's cache published so far
  DeliveryCursor delivered;        // the output already put into the channel
  int num_ranked = 0;              // tokens that the draft's head has learned from

  int length() const { return static_cast<int>(tokens.size()); }
  int num_cacheable() const { return length() - 1; }
  // Tokens that the next pass may feed. If the prompt is only scored, its last token is not fed,
  // because its successor is not needed; choices feed it themselves.
  int num_pending() const { return length() - target_kv.length() - (scores_only ? 1 : 0); }
  int num_output() const { return length() - prompt_length; }
  // The tenant's memory of texts; null if there is none.
  TextMemory* memory() const { return tenant == nullptr ? nullptr : tenant->memory.get(); }
  TokenHistory* history_if_used() { return sampling.needs_history() ? &history : nullptr; }

  // The sampling of the next `num_rows` rows: without a thinking budget that restricts none of
  // them, so that rows are not brought to the host or copied for it.
  const SamplingParams& SamplingOf(int num_rows) const {
    const bool are_free = free_sampling.has_value() && history.num_free() >= num_rows;
    return are_free ? *free_sampling : sampling;
  }

  // Maximum length of a draft now. One more token is emitted after it, and all must fit max_length.
  int DraftRoom() const { return std::max(0, max_length - length() - 1); }

  // Whether log-probabilities of the prompt were requested and are not all reported yet.
  bool NeedsPromptLogprobs() const {
    return prompt_logprobs.num_top >= 0 &&
           static_cast<int>(completion.prompt_logprobs.size()) < prompt_length;
  }

  // Counts the prompt for the client when the session is admitted first, and takes over the
  // client's debt if the session has a constraint.
  void TakePlace();
  // Commits one output token. If several conditions end the generation, the first one checked wins.
  // Returns false if the generation ends with this token.
  bool Append(TokenId token, Provenance provenance);
  // Ends the generation. Releases text that was held back, unless the generation is cancelled: that
  // text would not be delivered.
  void Finish(FinishReason reason);
  void Fail(absl::Status why);
  // Ends a session that only scores its prompt once the prompt has been read.
  void EndIfScored() {
    if (scores_only && choices == nullptr && num_pending() <= 0) Finish(FinishReason::kLength);
  }
  // Whether its choices are scored next.
  bool IsChoosing() const { return choices != nullptr && num_pending() <= 0; }
  // Returns how much of the prompt was read, if it was requested and not yet delivered, and marks
  // it as delivered.
  std::optional<PromptProgress> TakeProgress();
  // Returns the output that was not delivered yet, with such progress, and marks it as delivered;
  // nothing if there is none. The result refers to the session's memory. `drafter` may be null.
  std::optional<Piece> TakePiece(const Drafter* drafter);
};

}  // namespace tandem

#endif  // TANDEM_ENGINE_SESSION_H_
