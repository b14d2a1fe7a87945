#include "tools/plain_comparison.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/instant.h"
#include "base/machine_load.h"
#include "base/status_macros.h"
#include "engine/report_json.h"
#include "nlohmann/json.hpp"
#include "tools/report.h"
#include "tools/standard_streams.h"

namespace tandem {
namespace {

using ComparedRun = PlainComparison::Run;

constexpr int kNumPairs = 3;

absl::StatusOr<ComparedRun> RunAll(Engine* engine, const std::vector<Request>& requests,
                                   bool speculates) {
  ComparedRun run;
  const Instant start = Instant::Now();
  std::vector<absl::StatusOr<GenerationId>> begun;
  for (Request request : requests) {
    if (!speculates) request.draft_tokens = 0;
    begun.push_back(engine->Submit(std::move(request), /*on_piece=*/nullptr));
  }
  absl::Status status;
  for (const absl::StatusOr<GenerationId>& id : begun) {
    if (id.ok() && !status.ok()) engine->Cancel(*id);
    absl::StatusOr<Completion> completion = id.ok() ? engine->Wait(*id) : id.status();
    if (status.ok()) status = completion.status();
    if (status.ok()) run.completions.push_back(*std::move(completion));
  }
  RETURN_IF_ERROR(status);
  run.time = Instant::Now() - start;
  return run;
}

Spread SpreadOver(const std::vector<ComparedRun>& runs, double (ComparedRun::*value)() const) {
  std::vector<double> values;
  for (const ComparedRun& run : runs) values.push_back((run.*value)());
  return SpreadOf(std::move(values));
}

ComparedRun MedianRun(std::vector<ComparedRun> runs) {
  std::sort(runs.begin(), runs.end(), [](const ComparedRun& a, const ComparedRun& b) {
    return a.TokensPerSecond() < b.TokensPerSecond();
  });
  return std::move(runs[runs.size() / 2]);
}

bool HasSameTokens(const ComparedRun& run, absl::Span<const Completion> as) {
  return std::equal(
      run.completions.begin(), run.completions.end(), as.begin(), as.end(),
      [](const Completion& a, const Completion& b) { return a.token_ids == b.token_ids; });
}

// Runs plain before speculative, then the other way round, and so on, so that a drift of the
// machine's speed affects both equally.
absl::Status RunPairs(Engine* engine, const std::vector<Request>& requests,
                      std::vector<ComparedRun>* plain, std::vector<ComparedRun>* speculative,
                      Progress* progress) {
  for (int pair = 0; pair < kNumPairs; ++pair) {
    const bool speculates_first = pair % 2 == 1;
    for (const bool speculates : {speculates_first, !speculates_first}) {
      ASSIGN_OR_RETURN(ComparedRun run, RunAll(engine, requests, speculates));
      (speculates ? speculative : plain)->push_back(std::move(run));
      progress->Advance(1);
    }
  }
  return absl::OkStatus();
}

std::string FromTo(const Spread& spread, double scale = 1.0) {
  return absl::StrCat("(", ThreeDigits(scale * spread.low), " to ",
                      ThreeDigits(scale * spread.high), ")");
}

void AddSpread(const std::string& name, const Spread& spread, nlohmann::json* json) {
  (*json)[name] = spread.median;
  (*json)[name + "_spread"] = {spread.low, spread.high};
}

}  // namespace

double PlainComparison::Run::TokensPerSecond() const {
  size_t tokens = 0;
  for (const Completion& completion : completions) tokens += completion.token_ids.size();
  return static_cast<double>(tokens) / absl::ToDoubleSeconds(time);
}

double PlainComparison::Run::AcceptanceRate() const {
  RoundStats stats;
  for (const Completion& completion : completions) stats += completion.stats;
  return stats.AcceptanceRate();
}

absl::StatusOr<PlainComparison> CompareWithPlain(Engine* engine,
                                                 const std::vector<Request>& requests,
                                                 absl::Span<const Completion> first) {
  Progress progress("comparing", 1 + 2 * kNumPairs);
  RETURN_IF_ERROR(RunAll(engine, requests, /*speculates=*/false).status());
  progress.Advance(1);
  std::vector<ComparedRun> plain;
  std::vector<ComparedRun> speculative;
  const LoadWatch watch;
  RETURN_IF_ERROR(RunPairs(engine, requests, &plain, &speculative, &progress));
  PlainComparison comparison;
  comparison.others = watch.Read();
  std::vector<double> speedups;
  for (int i = 0; i < kNumPairs; ++i) {
    speedups.push_back(speculative[i].TokensPerSecond() / plain[i].TokensPerSecond());
    comparison.identical = comparison.identical && HasSameTokens(plain[i], first) &&
                           HasSameTokens(speculative[i], first);
  }
  comparison.plain_tokens_per_second = SpreadOver(plain, &ComparedRun::TokensPerSecond);
  comparison.tokens_per_second = SpreadOver(speculative, &ComparedRun::TokensPerSecond);
  comparison.acceptance_rate = SpreadOver(speculative, &ComparedRun::AcceptanceRate);
  comparison.speedup = SpreadOf(std::move(speedups));
  comparison.plain = MedianRun(std::move(plain));
  comparison.speculative = MedianRun(std::move(speculative));
  return comparison;
}

void AddToJson(const PlainComparison& comparison, size_t index, nlohmann::json* json) {
  const Completion& plain = comparison.plain.completions[index];
  const Completion& speculative = comparison.speculative.completions[index];
  (*json)["plain"] = {{"token_ids", plain.token_ids},
                      {"timings", TimingsJson(plain)},
                      {"tokens_per_second", comparison.plain_tokens_per_second.median}};
  (*json)["speedup"] = comparison.speedup.median;
  (*json)["identical"] = speculative.token_ids == plain.token_ids;
  nlohmann::json compared = {{"runs", kNumPairs}};
  compared.update(LoadJson(comparison.others));
  AddSpread("tokens_per_second", comparison.tokens_per_second, &compared);
  AddSpread("plain_tokens_per_second", comparison.plain_tokens_per_second, &compared);
  AddSpread("speedup", comparison.speedup, &compared);
  AddSpread("acceptance_rate", comparison.acceptance_rate, &compared);
  (*json)["compared"] = std::move(compared);
}

std::string ToText(const PlainComparison& comparison) {
  const Spread& speed = comparison.tokens_per_second;
  const Spread& plain = comparison.plain_tokens_per_second;
  const Spread& acceptance = comparison.acceptance_rate;
  std::string text =
      absl::StrCat("compared    ", kNumPairs,
                   " runs each way, alternating, after a warm-up; medians (lowest to highest):\n"
                   "speed       ",
                   ThreeDigits(speed.median), " tokens/s ", FromTo(speed), " with speculation, ",
                   ThreeDigits(plain.median), " ", FromTo(plain), " plain, prompts included\n");
  absl::StrAppendFormat(&text, "speed-up    %.2f (%.2f to %.2f)\n", comparison.speedup.median,
                        comparison.speedup.low, comparison.speedup.high);
  if (acceptance.high > 0) {
    absl::StrAppend(&text, "acceptance  ", ThreeDigits(100 * acceptance.median), " % ",
                    FromTo(acceptance, 100), "\n");
  }
  absl::StrAppend(&text, "identical: ", comparison.identical ? "true" : "false", "\n");
  if (comparison.others.is_disturbing) {
    absl::StrAppend(&text, "busy        ", BusyText(comparison.others), "\n");
  }
  return text;
}

}  // namespace tandem
