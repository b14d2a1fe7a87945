#include "engine/report_json.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/check.h"
#include "tandem/json_value.h"

namespace tandem {
namespace {

// JSON cannot represent -infinity.
JsonValue LogprobJson(double logprob) {
  return std::isfinite(logprob) ? JsonValue(logprob) : JsonValue(nullptr);
}

JsonValue LogprobsJson(const TokenLogprobs& logprobs) {
  JsonValue top = JsonValue::array();
  for (const auto& [id, logprob] : logprobs.top) top.push_back({id, LogprobJson(logprob)});
  return {{"id", logprobs.id}, {"logprob", LogprobJson(logprobs.logprob)}, {"top", top}};
}

}  // namespace

int NumDraftPlaces(const RoundStats& stats) {
  int count = 0;
  while (count < kMaxDraftTokens && stats.proposed_at[count] > 0) ++count;
  return count;
}

JsonValue TimingsJson(const Completion& completion) {
  const Timings& t = completion.timings;
  const int num_tokens = static_cast<int>(completion.token_ids.size());
  return {{"ttft_ms", absl::ToDoubleMilliseconds(t.time_to_first_token)},
          {"tpot_ms", absl::ToDoubleMilliseconds(
                          t.TimePerOutputToken(num_tokens, completion.first_round_tokens))},
          {"e2e_ms", absl::ToDoubleMilliseconds(t.end_to_end)},
          {"tokens_per_second", completion.TokensPerSecond()},
          {"queue_ms", absl::ToDoubleMilliseconds(t.queue)},
          {"prompt_tokens", completion.num_read_tokens()},
          {"prompt_ms", absl::ToDoubleMilliseconds(t.prompt)},
          {"prompt_tokens_per_second", completion.PromptTokensPerSecond()},
          {"decode_tokens", completion.num_decoded_tokens()},
          {"decode_ms", absl::ToDoubleMilliseconds(t.decode())},
          {"decode_tokens_per_second", completion.DecodeTokensPerSecond()},
          {"draft_ms", absl::ToDoubleMilliseconds(t.draft)},
          {"verify_ms", absl::ToDoubleMilliseconds(t.verify)},
          {"other_ms", absl::ToDoubleMilliseconds(t.other())},
          // The old name of `prompt_ms`, kept for one release.
          {"prefill_ms", absl::ToDoubleMilliseconds(t.prompt)}};
}

JsonValue BySourceJson(const RoundStats& stats) {
  JsonValue sources = JsonValue::array();
  for (int i = 0; i < kNumDraftSources; ++i) {
    const auto source = static_cast<DraftSource>(i);
    const RoundStats::SourceCounts& counts = stats.Of(source);
    if (counts.proposed == 0) continue;
    sources.push_back({{"source", std::string(NameOf(source))},
                       {"proposed", counts.proposed},
                       {"accepted", counts.accepted}});
  }
  return sources;
}

JsonValue SpeculationJson(const Completion& completion, const std::string& drafter) {
  const RoundStats& stats = completion.stats;
  JsonValue acceptance = JsonValue::array();
  JsonValue proposed = JsonValue::array();
  JsonValue accepted = JsonValue::array();
  for (int i = 0; i < NumDraftPlaces(stats); ++i) {
    acceptance.push_back(stats.AcceptanceAt(i));
    proposed.push_back(stats.proposed_at[i]);
    accepted.push_back(stats.accepted_at[i]);
  }
  const JsonValue draft_tokens = completion.draft_tokens == kAutoDraftTokens
                                     ? JsonValue("auto")
                                     : JsonValue(completion.draft_tokens);
  return {{"drafter", drafter},
          {"verifier", std::string(NameOf(completion.verifier))},
          {"draft_tokens", draft_tokens},
          {"rounds", stats.rounds},
          {"proposed", stats.proposed},
          {"accepted", stats.accepted},
          {"acceptance_rate", stats.AcceptanceRate()},
          {"tokens_per_round", stats.TokensPerRound()},
          {"acceptance_per_position", acceptance},
          {"proposed_per_position", proposed},
          {"accepted_per_position", accepted},
          {"by_source", BySourceJson(stats)},
          {"idle_reason",
           completion.idle_reason.empty() ? JsonValue(nullptr) : JsonValue(completion.idle_reason)},
          {"probes", stats.probes},
          {"probe_ms", absl::ToDoubleMilliseconds(stats.probe_time)}};
}

JsonValue ChoiceLogprobsJson(absl::Span<const ChoiceLogprob> choices) {
  JsonValue list = JsonValue::array();
  for (const ChoiceLogprob& choice : choices) {
    list.push_back({{"text", choice.text},
                    {"logprob", LogprobJson(choice.logprob)},
                    {"normalized_logprob", LogprobJson(choice.normalized_logprob)}});
  }
  return list;
}

namespace {

// Returns vLLM's `speculative_decoding`. Its steps are the rounds that verified a draft.
JsonValue AcceptanceJson(const Completion& completion) {
  const RoundStats& stats = completion.stats;
  const bool is_fixed = completion.draft_tokens != kAutoDraftTokens;
  const int longest =
      is_fixed ? std::max(completion.draft_tokens, NumDraftPlaces(stats)) : NumDraftPlaces(stats);
  std::vector<int64_t> histogram(longest + 1);
  JsonValue by_length = JsonValue::object();
  int64_t steps = 0;
  for (int k = 1; k <= longest; ++k) {
    const auto row = absl::MakeConstSpan(completion.rounds_by_length.counts[k]).first(k + 1);
    const int64_t count = std::accumulate(row.begin(), row.end(), int64_t{0});
    if (count == 0) continue;
    steps += count;
    for (int j = 0; j <= k; ++j) histogram[j] += row[j];
    by_length[absl::StrCat(k)] = std::vector<int64_t>(row.begin(), row.end());
  }
  const double per_step =
      steps == 0 ? 0.0 : static_cast<double>(stats.accepted) / static_cast<double>(steps);
  return {{"mean_acceptance_length", 1.0 + per_step},
          {"draft_acceptance_rate", stats.AcceptanceRate()},
          {"acceptance_histogram", histogram},
          {"acceptance_histogram_by_draft_length", by_length},
          {"num_spec_steps", steps},
          {"num_accepted_draft_tokens", stats.accepted},
          {"num_draft_tokens", stats.proposed},
          {"num_spec_tokens", longest}};
}

}  // namespace

JsonValue MetricsJson(const Completion& completion) {
  const Timings& t = completion.timings;
  const int num_tokens = static_cast<int>(completion.token_ids.size());
  return {{"time_to_first_token_ms", absl::ToDoubleMilliseconds(t.time_to_first_token - t.queue)},
          {"generation_time_ms", absl::ToDoubleMilliseconds(t.end_to_end - t.time_to_first_token)},
          {"queue_time_ms", absl::ToDoubleMilliseconds(t.queue)},
          {"mean_itl_ms", absl::ToDoubleMilliseconds(
                              t.TimePerOutputToken(num_tokens, completion.first_round_tokens))},
          {"tokens_per_second", completion.DecodeTokensPerSecond()},
          {"speculative_decoding",
           completion.draft_tokens == 0 ? JsonValue(nullptr) : AcceptanceJson(completion)}};
}

JsonValue KvTransferJson(const KvTransferParams& params) {
  return {{"do_remote_prefill", params.do_remote_prefill},
          {"do_remote_decode", params.do_remote_decode},
          {"remote_engine_id", params.remote_engine_id},
          {"remote_request_id", params.remote_request_id},
          {"remote_host", params.remote_host},
          {"remote_port", params.remote_port},
          {"remote_num_tokens", params.remote_num_tokens},
          {"remote_block_ids", JsonValue::array()},
          {"tp_size", 1},
          {"tokens_per_second", params.tokens_per_second}};
}

JsonValue CompletionJson(const Completion& completion, const std::string& drafter) {
  JsonValue json = {{"prompt_tokens", completion.prompt_tokens},
                    {"cached_tokens", completion.cached_tokens},
                    {"store_tokens", completion.store_tokens},
                    {"transfer_tokens", completion.transfer_tokens},
                    {"completion_tokens", completion.token_ids.size()},
                    {"text", completion.text},
                    {"token_ids", completion.token_ids},
                    {"finish_reason", std::string(NameOf(completion.finish_reason))},
                    {"provenance", completion.provenance},
                    {"timings", TimingsJson(completion)},
                    {"speculation", SpeculationJson(completion, drafter)}};
  if (!completion.logprobs.empty()) {
    for (const TokenLogprobs& logprobs : completion.logprobs) {
      json["logprobs"].push_back(LogprobsJson(logprobs));
    }
  }
  if (!completion.choice_logprobs.empty()) {
    json["choice_logprobs"] = ChoiceLogprobsJson(completion.choice_logprobs);
  }
  for (const std::optional<TokenLogprobs>& logprobs : completion.prompt_logprobs) {
    json["prompt_logprobs"].push_back(logprobs.has_value() ? LogprobsJson(*logprobs)
                                                           : JsonValue(nullptr));
  }
  return json;
}

void Join(const Completion& completion, Completion* joint) {
  joint->stats += completion.stats;
  if (joint->idle_reason.empty()) joint->idle_reason = completion.idle_reason;
  joint->prompt_tokens += completion.prompt_tokens;
  joint->cached_tokens += completion.cached_tokens;
  joint->store_tokens += completion.store_tokens;
  joint->transfer_tokens += completion.transfer_tokens;
  joint->first_round_tokens += completion.first_round_tokens;
  joint->token_ids.insert(joint->token_ids.end(), completion.token_ids.begin(),
                          completion.token_ids.end());
  const Timings& t = completion.timings;
  Timings& all = joint->timings;
  const absl::Duration first_read = std::min(all.queue + all.prompt, t.queue + t.prompt);
  const absl::Duration last_read = std::max(all.queue + all.all_prompts, t.queue + t.all_prompts);
  all.time_to_first_token = std::min(all.time_to_first_token, t.time_to_first_token);
  all.end_to_end = std::max(all.end_to_end, t.end_to_end);
  all.queue = std::min(all.queue, t.queue);
  all.prompt = first_read - all.queue;
  all.all_prompts = last_read - all.queue;
  // An engine's drafts and passes never overlap, so both maxima fit into the joint decode span.
  all.draft = std::max(all.draft, t.draft);
  all.verify = std::max(all.verify, t.verify);
}

Completion JointCompletion(absl::Span<const Completion> completions) {
  TANDEM_CHECK(!completions.empty());
  Completion joint;
  joint.finish_reason = completions[0].finish_reason;
  joint.verifier = completions[0].verifier;
  joint.draft_tokens = completions[0].draft_tokens;
  joint.timings = completions[0].timings;
  for (const Completion& completion : completions) Join(completion, &joint);
  return joint;
}

}  // namespace tandem
