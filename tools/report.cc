#include "tools/report.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

namespace tandem {
namespace {

using Json = nlohmann::json;

// -infinity has no number in JSON.
Json LogprobJson(float logprob) { return std::isfinite(logprob) ? Json(logprob) : Json(nullptr); }

Json LogprobsJson(const TokenLogprobs& logprobs) {
  Json top = Json::array();
  for (const auto& [id, logprob] : logprobs.top) top.push_back({id, LogprobJson(logprob)});
  return {{"id", logprobs.id}, {"logprob", LogprobJson(logprobs.logprob)}, {"top", top}};
}

// Draft places that some round verified.
int NumPlaces(const RoundStats& stats) {
  int count = 0;
  while (count < kMaxDraftTokens && stats.proposed_at[count] > 0) ++count;
  return count;
}

std::string ModelLine(absl::string_view role, const ModelInfo& info) {
  std::string line =
      absl::StrFormat("%-12s%s: %s, %.1f million parameters, %s", role, info.path, info.family,
                      static_cast<double>(info.parameters) * 1e-6, info.dtype);
  if (info.mapped_tokens.has_value()) {
    absl::StrAppend(&line, ", has ", *info.mapped_tokens, " of the target's tokens");
  }
  return line + "\n";
}

}  // namespace

double TokensPerSecond(const Completion& completion) {
  const double seconds = absl::ToDoubleSeconds(completion.timings.end_to_end);
  return seconds <= 0 ? 0 : static_cast<double>(completion.token_ids.size()) / seconds;
}

Json TimingsJson(const Completion& completion) {
  const Timings& t = completion.timings;
  const int num_tokens = static_cast<int>(completion.token_ids.size());
  return {{"ttft_ms", absl::ToDoubleMilliseconds(t.time_to_first_token)},
          {"tpot_ms", absl::ToDoubleMilliseconds(
                          t.TimePerOutputToken(num_tokens, completion.first_round_tokens))},
          {"e2e_ms", absl::ToDoubleMilliseconds(t.end_to_end)},
          {"tokens_per_second", TokensPerSecond(completion)},
          {"prefill_ms", absl::ToDoubleMilliseconds(t.prefill)},
          {"draft_ms", absl::ToDoubleMilliseconds(t.draft)},
          {"verify_ms", absl::ToDoubleMilliseconds(t.verify)}};
}

Json SpeculationJson(const Completion& completion, const std::string& drafter) {
  const RoundStats& stats = completion.stats;
  Json acceptance = Json::array();
  Json proposed = Json::array();
  Json accepted = Json::array();
  for (int i = 0; i < NumPlaces(stats); ++i) {
    acceptance.push_back(stats.AcceptanceAt(i));
    proposed.push_back(stats.proposed_at[i]);
    accepted.push_back(stats.accepted_at[i]);
  }
  const Json draft_tokens =
      completion.draft_tokens == kAutoDraftTokens ? Json("auto") : Json(completion.draft_tokens);
  return {{"drafter", drafter},
          {"verifier", completion.verifier},
          {"draft_tokens", draft_tokens},
          {"rounds", stats.rounds},
          {"proposed", stats.proposed},
          {"accepted", stats.accepted},
          {"acceptance_rate", stats.AcceptanceRate()},
          {"tokens_per_round", stats.TokensPerRound()},
          {"acceptance_per_position", acceptance},
          {"proposed_per_position", proposed},
          {"accepted_per_position", accepted},
          {"probes", stats.probes},
          {"probe_ms", absl::ToDoubleMilliseconds(stats.probe_time)}};
}

Json CompletionJson(const Completion& completion, const std::string& drafter) {
  Json json = {{"prompt_tokens", completion.prompt_tokens},
               {"cached_tokens", completion.cached_tokens},
               {"completion_tokens", completion.token_ids.size()},
               {"text", completion.text},
               {"token_ids", completion.token_ids},
               {"finish_reason", completion.finish_reason},
               {"provenance", completion.provenance},
               {"timings", TimingsJson(completion)},
               {"speculation", SpeculationJson(completion, drafter)}};
  if (!completion.logprobs.empty()) {
    for (const TokenLogprobs& logprobs : completion.logprobs) {
      json["logprobs"].push_back(LogprobsJson(logprobs));
    }
  }
  for (const std::optional<TokenLogprobs>& logprobs : completion.prompt_logprobs) {
    json["prompt_logprobs"].push_back(logprobs.has_value() ? LogprobsJson(*logprobs)
                                                           : Json(nullptr));
  }
  return json;
}

std::string TextReport(const Engine& engine, const Completion& completion) {
  const RoundStats& stats = completion.stats;
  const Timings& t = completion.timings;
  const int num_tokens = static_cast<int>(completion.token_ids.size());
  std::string report = ModelLine("target", engine.target_info());
  if (const auto draft = engine.draft_info(); draft.has_value()) {
    absl::StrAppend(&report, ModelLine("draft", *draft));
  }
  absl::StrAppend(&report, "device      ", engine.device_description(), "\n");
  absl::StrAppendFormat(&report, "tokens      %d prompt (%d cached), %d written, ended by %s\n",
                        completion.prompt_tokens, completion.cached_tokens, num_tokens,
                        completion.finish_reason);
  if (stats.proposed > 0) {
    absl::StrAppendFormat(
        &report, "acceptance  %.1f %% of the draft's tokens (%d of %d), rule %s\n",
        100.0 * stats.AcceptanceRate(), stats.accepted, stats.proposed, completion.verifier);
    absl::StrAppend(&report, "by position");
    for (int i = 0; i < NumPlaces(stats); ++i) {
      absl::StrAppendFormat(&report, " %.0f %%", 100.0 * stats.AcceptanceAt(i));
    }
    absl::StrAppendFormat(&report, "\nrounds      %d, %.2f tokens per round\n", stats.rounds,
                          stats.TokensPerRound());
  } else {
    absl::StrAppend(&report, "rounds      ", stats.rounds, ", without a draft\n");
  }
  absl::StrAppendFormat(
      &report, "time        first token %.1f ms, then %.2f ms per token; end to end %.1f ms\n",
      absl::ToDoubleMilliseconds(t.time_to_first_token),
      absl::ToDoubleMilliseconds(t.TimePerOutputToken(num_tokens, completion.first_round_tokens)),
      absl::ToDoubleMilliseconds(t.end_to_end));
  absl::StrAppendFormat(&report, "            prefill %.1f ms, draft %.1f ms, verify %.1f ms\n",
                        absl::ToDoubleMilliseconds(t.prefill), absl::ToDoubleMilliseconds(t.draft),
                        absl::ToDoubleMilliseconds(t.verify));
  absl::StrAppendFormat(&report, "speed       %.1f tokens/s\n", TokensPerSecond(completion));
  return report;
}

}  // namespace tandem
