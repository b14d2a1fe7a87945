#ifndef TANDEM_TOOLS_REPORT_H_
#define TANDEM_TOOLS_REPORT_H_

#include <string>

#include "absl/time/time.h"
#include "base/machine_load.h"
#include "tandem/engine.h"
#include "tandem/json_value.h"

namespace tandem {

// Formats the counts, rates and times of one answer as a few lines of text.
std::string TextReport(const Engine& engine, const Completion& completion);
// Does the same for `num_prompts` answers together, which took `time`. `joint` is their sum.
std::string BatchReport(const Engine& engine, const Completion& joint, int num_prompts,
                        absl::Duration time);

// Formats a non-negative number with three significant digits and at most three decimals: "0.271",
// "50"; from 1,000 on, as an integer: "2,685".
std::string ThreeDigits(double number);
// "74.3 % (26 of 35)"; "0 % (0 of 0)".
std::string PercentOf(int64_t part, int64_t whole);
// Formats the accepted share of draft tokens, and the counts of each source: "74.0 % (54 of 73):
// model 48 of 48, lookup 6 of 25".
std::string AcceptanceText(const RoundStats& stats);

// {"disturbed": whether other programs were too busy for timings to be trusted, "share_of_others":
// their share of the processors' time, or null}.
SortedJson LoadJson(const OtherLoad& load);
// Says how much they used, and what to do about it. REQUIRES: `load` is disturbing.
std::string BusyText(const OtherLoad& load);

// Formats JSON for `generate`: in one line of ASCII, whatever bytes the strings hold.
std::string OneLine(const SortedJson& json);

}  // namespace tandem

#endif  // TANDEM_TOOLS_REPORT_H_
