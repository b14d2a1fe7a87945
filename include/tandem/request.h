#ifndef TANDEM_INCLUDE_TANDEM_REQUEST_H_
#define TANDEM_INCLUDE_TANDEM_REQUEST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tandem/acceptance_rule.h"
#include "tandem/choice_law.h"
#include "tandem/drafter_kind.h"
#include "tandem/kv_transfer.h"
#include "tandem/logprobs.h"
#include "tandem/output_constraint.h"
#include "tandem/reasoning.h"
#include "tandem/sampling_params.h"
#include "tandem/tokenizer.h"
#include "tandem/types.h"

namespace tandem {

// A request for one generation.
struct Request {
  std::string prompt{};               // text; the tokenizer's template adds its tokens
  std::vector<TokenId> prompt_ids{};  // or ids, used unchanged
  // How special tokens written in `prompt` are read. Use kPlain for untrusted text.
  SpecialTokens special = SpecialTokens::kParse;
  // 0 only reads the prompt, and scores it if `prompt_logprobs` is set.
  int max_tokens = 256;
  // Time limit from Submit on. When it passes, the generation ends as kDeadline with the tokens so
  // far.
  absl::Duration time_limit = absl::InfiniteDuration();
  SamplingParams sampling{};
  std::optional<OutputConstraint> constraint{};  // the text must match it; not with ignore_eos
  // kConditional is for a constraint to one of some texts: a choice, or a schema that is an enum of
  // strings. Of `sampling` only the temperature may then be set.
  ChoiceLaw choice_law = ChoiceLaw::kMasked;
  // Limits the reasoning; usually ChatAnswer::thinking_budget. A constraint must allow the marker
  // that ends the reasoning.
  std::optional<ThinkingBudget> thinking_budget{};
  // With a seed the output depends only on model, prompt, parameters and seed, unless `verifier` is
  // a rule other than exact_match. Without a seed every request uses fresh random numbers.
  std::optional<uint64_t> seed{};
  uint32_t sequence = 0;  // index among several sequences with one seed
  std::vector<std::string> stop{};
  std::vector<TokenId> stop_tokens{};  // in addition to the model's own
  bool ignore_eos = false;             // continue after the model's own end tokens
  // Whether the text includes the stop string or stop token that ended it.
  bool include_stop = false;
  bool skip_special_tokens = true;
  std::vector<TokenId> shown_special_tokens{};  // shown even if others are skipped
  std::optional<int> draft_tokens{};            // overrides the engine's
  // Overrides the engine's; one of Engine::drafters() or kNone.
  std::optional<DrafterKind> drafter{};
  std::optional<AcceptanceRule> verifier{};
  std::string prediction{};  // text that the output is likely to repeat: a source of free drafts
  // Identifies the tenant. Prefixes, remembered texts and the statistics that speculation learns
  // are shared only among requests with the same salt. Requests without a salt form one tenant.
  std::string cache_salt{};
  // Whose request it is. Clients take turns (docs/scheduling.md); requests of one client are served
  // in order of arrival. Requests without a name are one client.
  std::string client{};
  KvTransferParams kv_transfer_params{};
  std::string request_id{};  // appears in log lines
  // Whether pieces also tell how much of the prompt was read: once the generation begins, and after
  // each pass until all is read. `processed` falls only if the generation is preempted.
  bool prompt_progress = false;
  LogprobOptions logprobs{};
  LogprobOptions prompt_logprobs{};
};

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_REQUEST_H_
