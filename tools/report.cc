#include "tools/report.h"

#include <cmath>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/format.h"
#include "engine/report_json.h"
#include "tandem/json_value.h"

namespace tandem {
namespace {

// "1,234,567".
std::string WithCommas(int64_t number) {
  std::string digits = absl::StrCat(number);
  for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3) digits.insert(at, ",");
  return digits;
}

std::string ModelLine(absl::string_view role, const ModelInfo& info) {
  std::string line = Format("%-12s%s: %s, %.1f million parameters, %s", role, info.path,
                            info.family, static_cast<double>(info.parameters) * 1e-6, info.dtype);
  absl::StrAppend(&line, ", cache of ", info.kv_cache);
  if (info.window > 0) absl::StrAppend(&line, ", window of ", info.window);
  if (info.mask_token.has_value()) {
    absl::StrAppend(&line, ", parallel with mask token ", *info.mask_token);
  }
  if (info.mapped_tokens.has_value()) {
    absl::StrAppend(&line, ", has ", *info.mapped_tokens, " of the target's tokens");
  }
  if (info.quantize != "none") absl::StrAppend(&line, ", requantised to ", info.quantize);
  if (info.head_coverage.has_value()) {
    absl::StrAppend(&line, ", proposes ", WithCommas(info.head_tokens), " of its tokens, ",
                    ThreeDigits(100.0 * *info.head_coverage), " % of the text");
  }
  return line + "\n";
}

std::string ModelLines(const Engine& engine) {
  std::string lines = ModelLine("target", engine.target_info());
  if (const auto draft = engine.draft_info(); draft.has_value()) {
    absl::StrAppend(&lines, ModelLine("draft", *draft));
  }
  absl::StrAppend(&lines, "device      ", engine.device_description(), "\n");
  return lines;
}

// "1 token", "2,048 tokens".
std::string Tokens(int64_t count) {
  return absl::StrCat(WithCommas(count), count == 1 ? " token" : " tokens");
}

std::string Ms(absl::Duration time) {
  return ThreeDigits(absl::ToDoubleMilliseconds(time)) + " ms";
}

std::string PromptLine(const Completion& completion) {
  std::string line = absl::StrCat("prompt      ", Tokens(completion.prompt_tokens));
  if (completion.cached_tokens > 0) {
    absl::StrAppend(&line, ", ", WithCommas(completion.cached_tokens), " cached");
    if (completion.store_tokens > 0) {
      absl::StrAppend(&line, " (", WithCommas(completion.store_tokens), " on disk)");
    }
    absl::StrAppend(&line, ",");
    if (completion.num_read_tokens() > 0) {
      absl::StrAppend(&line, " ", WithCommas(completion.num_read_tokens()), " read");
    }
  }
  absl::StrAppend(&line, " in ", Ms(completion.timings.all_prompts));
  if (const double rate = completion.PromptTokensPerSecond(); rate > 0) {
    absl::StrAppend(&line, " (", ThreeDigits(rate), " tokens/s)");
  }
  return line + "\n";
}

std::string AnswerLine(const Completion& completion) {
  std::string line =
      absl::StrCat("answer      ", Tokens(static_cast<int64_t>(completion.token_ids.size())));
  if (const double rate = completion.DecodeTokensPerSecond(); rate > 0) {
    absl::StrAppend(&line, " at ", ThreeDigits(rate), " tokens/s");
  }
  return absl::StrCat(line, ", ended by ", std::string(NameOf(completion.finish_reason)), "\n");
}

std::string SpeculationLines(const Completion& completion) {
  const RoundStats& stats = completion.stats;
  const std::string idle =
      completion.idle_reason.empty() ? "" : absl::StrCat(completion.idle_reason, "\n");
  if (stats.proposed == 0) {
    return absl::StrCat("rounds      ", WithCommas(stats.rounds), ", without a draft\n", idle);
  }
  std::string lines = absl::StrCat("acceptance  ", AcceptanceText(stats), ", rule ",
                                   std::string(NameOf(completion.verifier)), "\n", "by position ");
  for (int i = 0; i < NumDraftPlaces(stats); ++i) {
    absl::StrAppend(&lines, i == 0 ? "" : ", ",
                    PercentOf(stats.accepted_at[i], stats.proposed_at[i]));
  }
  lines += Format("\nrounds      %s, %.2f tokens per round\n", WithCommas(stats.rounds),
                  stats.TokensPerRound());
  return lines + idle;
}

std::string TimeLines(const Completion& completion) {
  const Timings& t = completion.timings;
  const int num_tokens = static_cast<int>(completion.token_ids.size());
  return absl::StrCat(
      "time        ", Ms(t.end_to_end), " end to end: ",
      t.queue >= absl::Milliseconds(1) ? absl::StrCat("waiting ", Ms(t.queue), ", ") : "",
      "prompt ", Ms(t.prompt), ", draft ", Ms(t.draft), ", verification ", Ms(t.verify), ", other ",
      Ms(t.other()), "\n            first token after ", Ms(t.time_to_first_token), ", then ",
      Ms(t.TimePerOutputToken(num_tokens, completion.first_round_tokens)), " per token\n");
}

}  // namespace

std::string ThreeDigits(double number) {
  if (number >= 999.5) return WithCommas(std::llround(number));
  return Format("%.3g", number < 1.0 ? std::round(number * 1e3) / 1e3 : number);
}

std::string PercentOf(int64_t part, int64_t whole) {
  const double percent =
      whole == 0 ? 0.0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
  return absl::StrCat(ThreeDigits(percent), " % (", part, " of ", whole, ")");
}

std::string AcceptanceText(const RoundStats& stats) {
  std::string text = PercentOf(stats.accepted, stats.proposed);
  const char* separator = ": ";
  for (int i = 0; i < kNumDraftSources; ++i) {
    const auto source = static_cast<DraftSource>(i);
    const RoundStats::SourceCounts& counts = stats.Of(source);
    if (counts.proposed == 0) continue;
    absl::StrAppend(&text, std::exchange(separator, ", "), std::string(NameOf(source)), " ",
                    counts.accepted, " of ", counts.proposed);
  }
  return text;
}

std::string TextReport(const Engine& engine, const Completion& completion) {
  return absl::StrCat(ModelLines(engine), PromptLine(completion), AnswerLine(completion),
                      SpeculationLines(completion), TimeLines(completion));
}

std::string BatchReport(const Engine& engine, const Completion& joint, int num_prompts,
                        absl::Duration time) {
  const int64_t num_tokens = static_cast<int64_t>(joint.token_ids.size());
  return absl::StrCat(ModelLines(engine), "prompts     ", WithCommas(num_prompts), ", of ",
                      Tokens(joint.prompt_tokens), " (", WithCommas(joint.cached_tokens),
                      " cached)\n", "answers     ", Tokens(num_tokens), " in ", Ms(time), " (",
                      ThreeDigits(static_cast<double>(num_tokens) / absl::ToDoubleSeconds(time)),
                      " tokens/s), reading the prompts included\n", SpeculationLines(joint));
}

SortedJson LoadJson(const OtherLoad& load) {
  return {
      {"disturbed", load.is_disturbing},
      {"share_of_others", load.share.has_value() ? SortedJson(*load.share) : SortedJson(nullptr)}};
}

std::string BusyText(const OtherLoad& load) {
  return Format(
      "other programs took %.0f %% of the processors' time during these runs: measure again when "
      "the machine is idle",
      100 * load.share.value_or(0.0));
}

std::string OneLine(const SortedJson& json) {
  return json.dump(-1, ' ', true, SortedJson::error_handler_t::replace);
}

}  // namespace tandem
