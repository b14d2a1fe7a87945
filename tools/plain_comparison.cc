#include "tools/plain_comparison.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "nlohmann/json.hpp"
#include "server/report_json.h"
#include "tools/ordered_run.h"

namespace tandem {
namespace {

// In this order, so that a drift of the machine's speed falls on both alike.
constexpr bool kSpeculates[] = {false, true, true, false, false, true};

absl::StatusOr<std::vector<Completion>> RunAll(Engine* engine, const std::vector<Request>& requests,
                                               bool speculates) {
  size_t num_begun = 0;
  std::vector<Completion> completions;
  const auto next = [&]() -> std::optional<absl::StatusOr<Request>> {
    if (num_begun == requests.size()) return std::nullopt;
    Request request = requests[num_begun++];
    if (!speculates) request.draft_tokens = 0;
    return request;
  };
  RETURN_IF_ERROR(RunInOrder(
      engine, requests.size(), /*has_next=*/[] { return true; }, next,
      [&](absl::StatusOr<Completion> completion) -> absl::Status {
        RETURN_IF_ERROR(completion.status());
        completions.push_back(*std::move(completion));
        return absl::OkStatus();
      }));
  return completions;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// Tokens of all sequences over the time from the first submission to the last token.
double JointTokensPerSecond(absl::Span<const Completion> completions) {
  size_t tokens = 0;
  absl::Duration time;
  for (const Completion& completion : completions) {
    tokens += completion.token_ids.size();
    time = std::max(time, completion.timings.end_to_end);
  }
  return static_cast<double>(tokens) / absl::ToDoubleSeconds(time);
}

}  // namespace

absl::StatusOr<PlainComparison> CompareWithPlain(Engine* engine,
                                                 const std::vector<Request>& requests,
                                                 absl::Span<const Completion> speculative) {
  PlainComparison comparison;
  std::vector<double> speeds[2];
  for (const bool speculates : kSpeculates) {
    ASSIGN_OR_RETURN(std::vector<Completion> completions, RunAll(engine, requests, speculates));
    speeds[speculates].push_back(JointTokensPerSecond(completions));
    for (size_t i = 0; i < completions.size(); ++i) {
      if (completions[i].token_ids != speculative[i].token_ids) comparison.identical = false;
    }
    if (!speculates) comparison.plain = std::move(completions);
  }
  comparison.plain_tokens_per_second = Median(speeds[false]);
  comparison.speculative_tokens_per_second = Median(speeds[true]);
  return comparison;
}

void AddToJson(const PlainComparison& comparison, size_t index, const Completion& speculative,
               nlohmann::json* json) {
  const Completion& plain = comparison.plain[index];
  (*json)["plain"] = {{"token_ids", plain.token_ids},
                      {"timings", TimingsJson(plain)},
                      {"tokens_per_second", comparison.plain_tokens_per_second}};
  (*json)["speedup"] = comparison.speedup();
  (*json)["identical"] = speculative.token_ids == plain.token_ids;
}

std::string ToText(const PlainComparison& comparison) {
  return absl::StrFormat(
      "compared    %.1f tokens/s with speculation, %.1f plain: %.2f times as fast "
      "(medians of 3, interleaved)\nidentical: %s\n",
      comparison.speculative_tokens_per_second, comparison.plain_tokens_per_second,
      comparison.speedup(), comparison.identical ? "true" : "false");
}

}  // namespace tandem
