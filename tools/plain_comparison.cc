#include "tools/plain_comparison.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/format.h"
#include "base/instant.h"
#include "base/machine_load.h"
#include "base/status_macros.h"
#include "engine/report_json.h"
#include "tandem/json_value.h"
#include "tools/report.h"
#include "tools/standard_streams.h"

namespace tandem {
namespace {

using ComparedRun = PlainComparison::Run;

constexpr int kMinPairs = 3;
constexpr int kMaxPairs = 9;
// Speculative runs before the compared ones: what an engine learns in its first rounds (costs,
// acceptance) then serves all compared runs alike.
constexpr int kNumWarmUps = 3;
constexpr double kMaxSpread = 1.1;
constexpr absl::Duration kMaxTime = absl::Seconds(30);

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

template <typename Value>
Spread SpreadOver(absl::Span<const ComparedPair> pairs, const Value& value) {
  std::vector<double> values;
  for (const ComparedPair& pair : pairs) values.push_back(std::invoke(value, pair));
  return SpreadOf(std::move(values));
}

ComparedRun MedianRun(std::vector<ComparedPair> pairs, ComparedRun ComparedPair::*run) {
  std::sort(pairs.begin(), pairs.end(), [&](const ComparedPair& a, const ComparedPair& b) {
    return (a.*run).TokensPerSecond() < (b.*run).TokensPerSecond();
  });
  return pairs[pairs.size() / 2].*run;
}

// The pairs that other programs did not disturb.
std::vector<ComparedPair> Calm(absl::Span<const ComparedPair> pairs) {
  std::vector<ComparedPair> calm;
  for (const ComparedPair& pair : pairs) {
    if (!pair.others.is_disturbing) calm.push_back(pair);
  }
  return calm;
}

bool HasSameTokens(const ComparedRun& run, absl::Span<const Completion> as) {
  return std::equal(
      run.completions.begin(), run.completions.end(), as.begin(), as.end(),
      [](const Completion& a, const Completion& b) { return a.token_ids == b.token_ids; });
}

absl::StatusOr<ComparedPair> RunPair(Engine* engine, const std::vector<Request>& requests,
                                     bool speculates_first) {
  ComparedPair pair;
  const LoadWatch watch;
  for (const bool speculates : {speculates_first, !speculates_first}) {
    ASSIGN_OR_RETURN((speculates ? pair.speculative : pair.plain),
                     RunAll(engine, requests, speculates));
  }
  pair.others = watch.Read();
  return pair;
}

std::string FromTo(const Spread& spread, double scale = 1.0) {
  return absl::StrCat("(", ThreeDigits(scale * spread.low), " to ",
                      ThreeDigits(scale * spread.high), ")");
}

void AddSpread(const std::string& name, const Spread& spread, SortedJson* json) {
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

bool NeedsAnotherPair(absl::Span<const ComparedPair> pairs, absl::Duration elapsed) {
  const std::vector<ComparedPair> calm = Calm(pairs);
  if (pairs.size() < kMinPairs) return true;
  if (elapsed >= kMaxTime || calm.size() >= kMaxPairs) return false;
  if (calm.size() < kMinPairs) return true;
  const Spread speedup = SpreadOver(calm, &ComparedPair::Speedup);
  return speedup.high > kMaxSpread * speedup.low;
}

PlainComparison Summarise(absl::Span<const ComparedPair> pairs,
                          absl::Span<const Completion> first) {
  PlainComparison comparison;
  for (const ComparedPair& pair : pairs) {
    comparison.identical = comparison.identical && HasSameTokens(pair.plain, first) &&
                           HasSameTokens(pair.speculative, first);
  }
  std::vector<ComparedPair> counted = Calm(pairs);
  comparison.others.is_disturbing = counted.size() < kMinPairs;
  if (comparison.others.is_disturbing) counted.assign(pairs.begin(), pairs.end());
  double shares = 0.0;
  bool knows_shares = true;
  for (const ComparedPair& pair : counted) {
    shares += pair.others.share.value_or(0.0);
    knows_shares = knows_shares && pair.others.share.has_value();
  }
  comparison.num_pairs = static_cast<int>(counted.size());
  if (knows_shares) comparison.others.share = shares / comparison.num_pairs;
  comparison.plain_tokens_per_second =
      SpreadOver(counted, [](const ComparedPair& pair) { return pair.plain.TokensPerSecond(); });
  comparison.tokens_per_second = SpreadOver(
      counted, [](const ComparedPair& pair) { return pair.speculative.TokensPerSecond(); });
  comparison.acceptance_rate = SpreadOver(
      counted, [](const ComparedPair& pair) { return pair.speculative.AcceptanceRate(); });
  comparison.speedup = SpreadOver(counted, &ComparedPair::Speedup);
  comparison.plain = MedianRun(counted, &ComparedPair::plain);
  comparison.speculative = MedianRun(counted, &ComparedPair::speculative);
  return comparison;
}

absl::StatusOr<PlainComparison> CompareWithPlain(Engine* engine,
                                                 const std::vector<Request>& requests,
                                                 absl::Span<const Completion> first) {
  Progress progress("comparing", 1 + kNumWarmUps + 2 * kMinPairs);
  for (int run = 0; run < 1 + kNumWarmUps; ++run) {
    RETURN_IF_ERROR(RunAll(engine, requests, /*speculates=*/run > 0).status());
    progress.Advance(1);
  }
  std::vector<ComparedPair> pairs;
  const Instant start = Instant::Now();
  // Runs plain before speculative, then the other way round, and so on, so that a drift of the
  // machine's speed affects both equally.
  while (NeedsAnotherPair(pairs, Instant::Now() - start)) {
    ASSIGN_OR_RETURN(ComparedPair pair, RunPair(engine, requests, pairs.size() % 2 == 1));
    pairs.push_back(std::move(pair));
    progress.Advance(2);
  }
  return Summarise(pairs, first);
}

void AddToJson(const PlainComparison& comparison, size_t index, SortedJson* json) {
  const Completion& plain = comparison.plain.completions[index];
  const Completion& speculative = comparison.speculative.completions[index];
  (*json)["plain"] = {{"token_ids", plain.token_ids},
                      {"timings", TimingsJson(plain)},
                      {"tokens_per_second", comparison.plain_tokens_per_second.median}};
  (*json)["speedup"] = comparison.speedup.median;
  (*json)["identical"] = speculative.token_ids == plain.token_ids;
  SortedJson compared = {{"runs", comparison.num_pairs}};
  compared.update(LoadJson(comparison.others));
  AddSpread("tokens_per_second", comparison.tokens_per_second, &compared);
  AddSpread("plain_tokens_per_second", comparison.plain_tokens_per_second, &compared);
  AddSpread("speedup", comparison.speedup, &compared);
  AddSpread("acceptance_rate", comparison.acceptance_rate, &compared);
  (*json)["compared"] = std::move(compared);
}

std::string ToText(const PlainComparison& comparison) {
  const std::string identical =
      absl::StrCat("identical: ", comparison.identical ? "true" : "false", "\n");
  if (comparison.others.is_disturbing) {
    return absl::StrCat("speed-up    no figure: ", BusyText(comparison.others), "\n", identical);
  }
  const Spread& speed = comparison.tokens_per_second;
  const Spread& plain = comparison.plain_tokens_per_second;
  const Spread& acceptance = comparison.acceptance_rate;
  std::string text = absl::StrCat(
      "compared    ", comparison.num_pairs,
      " runs each way, alternating, after four that the policy learned from; medians (lowest to "
      "highest):\nspeed       ",
      ThreeDigits(speed.median), " tokens/s ", FromTo(speed), " with speculation, ",
      ThreeDigits(plain.median), " ", FromTo(plain), " plain, prompts included\n");
  text += Format("speed-up    %.2f (%.2f to %.2f)\n", comparison.speedup.median,
                 comparison.speedup.low, comparison.speedup.high);
  if (acceptance.high > 0) {
    absl::StrAppend(&text, "acceptance  ", ThreeDigits(100 * acceptance.median), " % ",
                    FromTo(acceptance, 100), "\n");
  }
  return text + identical;
}

}  // namespace tandem
