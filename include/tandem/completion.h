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
  kBonus = 'b',       // the target's own, after a fully accepted draft
};

// Why a generation ended.
enum class FinishReason {
  kStop,       // an end token, a stop token or a stop string
  kLength,     // max_tokens, or the end of the context
  kCancelled,  // Engine::Cancel, a callback that returned false, or the engine's destruction
  kDeadline,   // Request::time_limit
};
// "stop", "length", "cancelled", "deadline".
std::string_view NameOf(FinishReason reason);

// Spans of a generation's wall-clock time, from its submission on. A round that several generations
// share counts in full for each of them.
//
//   end_to_end = queue + prompt + decode()      decode() = draft + verify + other()
struct Timings {
  absl::Duration time_to_first_token;
  absl::Duration end_to_end;
  absl::Duration queue;   // until it was first admitted
  absl::Duration prompt;  // from admission to the end of the pass that completes the prompt
  absl::Duration draft;   // of the decode span: making drafts
  absl::Duration verify;  // of the decode span: passes of the target
  // Equals `prompt` for one sequence. For several sequences reported together, `prompt` ends when
  // the first of them has read its prompt, and this span when the last has.
  absl::Duration all_prompts;

  // From the end of the prompt to the end of the generation.
  absl::Duration decode() const { return end_to_end - queue - prompt; }
  // The rest of the decode span: committing tokens, text, callbacks, planning, and rounds in which
  // this generation did not take part.
  absl::Duration other() const { return decode() - draft - verify; }
  // Mean time per output token, without the first round's tokens.
  absl::Duration TimePerOutputToken(int num_tokens, int first_tokens) const;
};

// The probability that the target gives to one of the texts that an output may be, the end
// included (docs/choices.md).
struct ChoiceLogprob {
  std::string text;
  double logprob = 0.0;             // natural logarithm, from raw rows
  double normalized_logprob = 0.0;  // divided by the sum over all texts

  bool operator==(const ChoiceLogprob&) const = default;
};

struct Completion {
  // All pieces' text joined: without special tokens, cut before a stop string. If the generation
  // was cancelled, only the text of pieces that were delivered.
  std::string text;
  std::vector<TokenId> token_ids;  // including the stop token, if one ended it
  FinishReason finish_reason = FinishReason::kStop;
  std::string provenance;               // one letter of Provenance per token
  std::vector<TokenLogprobs> logprobs;  // per token, if asked for
  // Per prompt token, if asked for; the first entry is empty.
  std::vector<std::optional<TokenLogprobs>> prompt_logprobs;
  // With ChoiceLaw::kConditional: of all texts, in the request's order.
  std::vector<ChoiceLogprob> choice_logprobs;
  int prompt_tokens = 0;
  int cached_tokens = 0;       // prompt tokens found in the prefix cache
  int store_tokens = 0;        // cached tokens read from EngineOptions::kv_store
  int transfer_tokens = 0;     // cached tokens fetched from another worker
  int first_round_tokens = 0;  // output tokens of the first round
  int num_preemptions = 0;     // times its cache was released and recomputed
  AcceptanceRule verifier = AcceptanceRule::kExactMatch;  // the rule that was used
  int draft_tokens = 0;                                   // k, or kAutoDraftTokens
  RoundStats stats;
  RoundsByLength rounds_by_length;
  // Why fewer tokens were drafted than could be, in one sentence; empty if nothing is to be said.
  std::string idle_reason;
  Timings timings;
  // Parameters for the decode request, if this request had KvTransferParams::do_remote_decode.
  std::optional<KvTransferParams> kv_transfer_params{};

  // Cached tokens that were already in memory.
  int memory_tokens() const { return cached_tokens - store_tokens - transfer_tokens; }
  // Prompt tokens that passes have read: all but the cached ones.
  int num_read_tokens() const { return prompt_tokens - cached_tokens; }
  // Output tokens of the decode span. The first round's tokens are not counted: they come with the
  // pass that completes the prompt.
  int num_decoded_tokens() const {
    return std::max(static_cast<int>(token_ids.size()) - first_round_tokens, 0);
  }
  // Tokens divided by their span; 0 if there were no tokens or no time has passed.
  double PromptTokensPerSecond() const;
  double DecodeTokensPerSecond() const;
  // All output tokens over the time since admission; time in the queue does not count.
  double TokensPerSecond() const;
};

// The effect of one round on a generation's drafts and caches.
struct RoundReport {
  int proposed = 0;              // draft tokens that the target verified
  int accepted = 0;              // draft tokens that were kept
  int target_cached_tokens = 0;  // after the rollback
  int draft_cached_tokens = 0;   // the same for the draft, in draft tokens; 0 without one
};

// How much of its prompt a generation has read.
struct PromptProgress {
  int total = 0;          // tokens of the prompt
  int cached = 0;         // tokens that were found in a cache
  int processed = 0;      // tokens read so far, with the cached ones
  absl::Duration time{};  // since the submission
};

// The output that one round added to a generation, or several rounds if a callback took longer than
// a round.
struct Piece {
  std::string_view text;  // may be empty: incomplete characters are held back
  absl::Span<const TokenId> token_ids;
  std::string_view provenance;                 // one letter per token
  absl::Span<const TokenLogprobs> logprobs{};  // per token, if asked for
  // Completion::choice_logprobs, in the first piece with tokens.
  absl::Span<const ChoiceLogprob> choice_logprobs{};
  // Per correction in `provenance`: the rest of the refused draft. Its first token is the one that
  // the correction replaces.
  absl::Span<const std::vector<TokenId>> rejected{};
  RoundReport round{};  // of several rounds: summed counts, final cache lengths
  // Only with Request::prompt_progress, if there is news. Until the whole prompt is read, which
  // comes with the first token, pieces have nothing else.
  std::optional<PromptProgress> prompt_progress{};
};

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_COMPLETION_H_
