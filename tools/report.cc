#include "tools/report.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"
#include "server/report_json.h"

namespace tandem {
namespace {

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
                        NameOf(completion.finish_reason));
  if (stats.proposed > 0) {
    absl::StrAppendFormat(&report,
                          "acceptance  %.1f %% of the draft's tokens (%d of %d), rule %s\n",
                          100.0 * stats.AcceptanceRate(), stats.accepted, stats.proposed,
                          NameOf(completion.verifier));
    absl::StrAppend(&report, "by position");
    for (int i = 0; i < NumDraftPlaces(stats); ++i) {
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

std::string OneLine(const nlohmann::json& json) {
  return json.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

}  // namespace tandem
