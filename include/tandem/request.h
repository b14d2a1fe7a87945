#ifndef TANDEM_INCLUDE_TANDEM_REQUEST_H_
#define TANDEM_INCLUDE_TANDEM_REQUEST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tandem/acceptance_rule.h"
#include "tandem/drafter_kind.h"
#include "tandem/kv_transfer.h"
#include "tandem/logprobs.h"
#include "tandem/output_constraint.h"
#include "tandem/sampling_params.h"
#include "tandem/tokenizer.h"
#include "tandem/types.h"

namespace tandem {

// One generation to be made.
struct Request {
  std::string prompt{};               // text, which gets the tokens the tokenizer's template adds
  std::vector<TokenId> prompt_ids{};  // or ids, taken as they are
  // How special tokens written in `prompt` are read: kPlain for text from others.
  SpecialTokens special = SpecialTokens::kParse;
  // With 0 the prompt is read, and scored if `prompt_logprobs` asks for that.
  int max_tokens = 256;
  // From Submit on; then the generation ends as kDeadline, with the tokens so far.
  absl::Duration time_limit = absl::InfiniteDuration();
  SamplingParams sampling{};
  std::optional<OutputConstraint> constraint{};  // what the text must be; not with ignore_eos
  // With a seed the output is a function of model, prompt, parameters and seed alone, unless
  // `verifier` asks for another rule than exact_match. Without, every request draws afresh.
  std::optional<uint64_t> seed{};
  uint32_t sequence = 0;  // which of several sequences under one seed
  std::vector<std::string> stop{};
  std::vector<TokenId> stop_tokens{};  // in addition to the model's own
  bool ignore_eos = false;             // go on past the model's own end tokens
  // Whether the text shows the stop string or stop token that ended it, and special tokens.
  bool include_stop = false;
  bool skip_special_tokens = true;
  std::vector<TokenId> shown_special_tokens{};  // which it shows where others are skipped
  std::optional<int> draft_tokens{};            // in place of the engine's
  // In place of the engine's; one of Engine::drafters() or kNone.
  std::optional<DrafterKind> drafter{};
  std::optional<AcceptanceRule> verifier{};
  std::string prediction{};  // a text that the output may say much of again: drafts for nothing
  // Whose request it is: prefixes, remembered texts and what speculation learns from them are
  // shared among requests of the same salt alone. Those without one are a tenant, too.
  std::string cache_salt{};
  KvTransferParams kv_transfer_params{};
  std::string request_id{};  // in log lines
  LogprobOptions logprobs{};
  LogprobOptions prompt_logprobs{};
};

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_REQUEST_H_
