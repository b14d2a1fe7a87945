#ifndef TANDEM_INCLUDE_TANDEM_COMPLETION_H_
#define TANDEM_INCLUDE_TANDEM_COMPLETION_H_

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "tandem/acceptance_rule.h"
#include "tandem/kv_transfer.h"
#include "tandem/logprobs.h"
#include "tandem/round_stats.h"
#include "tandem/types.h"

namespace tandem {

// Where an output token came from.
enum class Provenance : char {
  kPlain = 'p',       // a pass without a draft
  kAccepted = 'a',    // an accepted draft token
  kCorrection = 'c',  // the target's own, after a rejection
  kBonus = 'b',       // the target's own, after a draft accepted whole
};

// What ended a generation.
enum class FinishReason {
  kStop,       // an end token, a stop token or a stop string
  kLength,     // max_tokens, or the end of the context
  kCancelled,  // Engine::Cancel, a callback that returned false, or the end of the engine
  kDeadline,   // Request::time_limit
};
// "stop", "length", "cancelled", "deadline".
std::string_view NameOf(FinishReason reason);

// Spans of a generation's wall clock, from its submission on. Those of rounds that it shares with
// others count whole for each of them.
//
//   end_to_end = queue + prompt + decode()      decode() = draft + verify + other()
struct Timings {
  absl::Duration time_to_first_token;
  absl::Duration end_to_end;
  absl::Duration queue;   // until it first had a place
  absl::Duration prompt;  // from there to the end of the pass that completes the prompt
  absl::Duration draft;   // of the decode span: making drafts
  absl::Duration verify;  // of the decode span: passes of the target
  // The same as `prompt` for one sequence. For several that are reported together, `prompt` ends
  // where the first of them has read its prompt, and this span where the last has.
  absl::Duration all_prompts;

  // After the prompt, to the end.
  absl::Duration decode() const { return end_to_end - queue - prompt; }
  // The rest of the decode span: committing tokens, text, callbacks, planning, and rounds without
  // this one.
  absl::Duration other() const { return decode() - draft - verify; }
  // Mean time of an output token after the first round's.
  absl::Duration TimePerOutputToken(int num_tokens, int first_tokens) const;
};

struct Completion {
  // Without special tokens, cut before a stop string. All pieces' text joined; of a generation that
  // was cancelled what a piece has carried, and no more.
  std::string text;
  std::vector<TokenId> token_ids;  // with the stop token, if one ended it
  FinishReason finish_reason = FinishReason::kStop;
  std::string provenance;               // a letter of Provenance per token
  std::vector<TokenLogprobs> logprobs;  // per token, if asked for
  // Per prompt token, if asked for; the first has none.
  std::vector<std::optional<TokenLogprobs>> prompt_logprobs;
  int prompt_tokens = 0;
  int cached_tokens = 0;       // of the prompt, found in the prefix cache
  int store_tokens = 0;        // of these, read from EngineOptions::kv_store
  int transfer_tokens = 0;     // of these, fetched from another worker
  int first_round_tokens = 0;  // emitted together with the first
  int num_preemptions = 0;     // times it gave its cache back and was computed again
  AcceptanceRule verifier = AcceptanceRule::kExactMatch;  // the rule that ran
  int draft_tokens = 0;                                   // k, or kAutoDraftTokens
  RoundStats stats;
  Timings timings;
  // For the decode request, after a request with KvTransferParams::do_remote_decode.
  std::optional<KvTransferParams> kv_transfer_params{};

  // Of the cached tokens, those that were in memory.
  int memory_tokens() const { return cached_tokens - store_tokens - transfer_tokens; }
  // Tokens of the prompt that passes have read: without those that the prefix cache had.
  int num_read_tokens() const { return prompt_tokens - cached_tokens; }
  // Tokens of the decode span: the first round's come with the pass that completes the prompt.
  int num_decoded_tokens() const {
    return std::max(static_cast<int>(token_ids.size()) - first_round_tokens, 0);
  }
  // Tokens over their span; 0 if nothing was done, or in no time.
  double PromptTokensPerSecond() const;
  double DecodeTokensPerSecond() const;
  // All output tokens from the place on: waiting for one is not counted.
  double TokensPerSecond() const;
};

// The effect of a round on one generation's caches.
struct RoundReport {
  int proposed = 0;              // draft tokens that the target verified
  int accepted = 0;              // of those, kept
  int target_cached_tokens = 0;  // after the rollback
  int draft_cached_tokens = 0;   // the same in the draft's tokens; 0 without a draft model
};

// The addition of one round to a generation, or of several if a callback took longer than one.
struct Piece {
  std::string_view text;  // may be empty: characters and stop strings are let out whole
  absl::Span<const TokenId> token_ids;
  std::string_view provenance;                 // a letter per token
  absl::Span<const TokenLogprobs> logprobs{};  // per token, if asked for
  RoundReport round{};                         // of several rounds the sum, and the last lengths
};

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_COMPLETION_H_
