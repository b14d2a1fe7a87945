#ifndef TANDEM_ENGINE_COMPLETION_H_
#define TANDEM_ENGINE_COMPLETION_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/types.h"
#include "model/logprobs.h"
#include "verify/acceptance_rule.h"
#include "verify/round_stats.h"

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

struct Timings {
  absl::Duration time_to_first_token;
  absl::Duration end_to_end;
  // Passes that only read the prompt; the last pass of a prompt counts as verify.
  absl::Duration prefill;
  absl::Duration draft;
  absl::Duration verify;
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
  int first_round_tokens = 0;  // emitted together with the first
  int num_preemptions = 0;     // times it gave its cache back and was computed again
  AcceptanceRule verifier = AcceptanceRule::kExactMatch;  // the rule that ran
  int draft_tokens = 0;                                   // k, or kAutoDraftTokens
  RoundStats stats;
  Timings timings;
};

// What a round did to one generation's caches.
struct RoundReport {
  int proposed = 0;              // draft tokens that the target verified
  int accepted = 0;              // of those, kept
  int target_cached_tokens = 0;  // after the rollback
  int draft_cached_tokens = 0;   // likewise, in the draft's tokens; 0 without a draft model
};

// What one round added to a generation; several rounds, if a callback took longer than a round.
struct Piece {
  std::string_view text;  // may be empty: characters and stop strings are let out whole
  absl::Span<const TokenId> token_ids;
  std::string_view provenance;                 // a letter per token
  absl::Span<const TokenLogprobs> logprobs{};  // per token, if asked for
  RoundReport round{};                         // of several rounds the sum, and the last lengths
};

}  // namespace tandem

#endif  // TANDEM_ENGINE_COMPLETION_H_
