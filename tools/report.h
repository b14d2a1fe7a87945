#ifndef TANDEM_TOOLS_REPORT_H_
#define TANDEM_TOOLS_REPORT_H_

#include <string>

#include "absl/time/time.h"
#include "nlohmann/json_fwd.hpp"
#include "tandem/engine.h"

namespace tandem {

// Counts, rates and times of one answer, in a few lines for a person.
std::string TextReport(const Engine& engine, const Completion& completion);
// The same of `num_prompts` answers joined, which took `time` together.
std::string BatchReport(const Engine& engine, const Completion& joint, int num_prompts,
                        absl::Duration time);

// A number that is not negative, to three digits and three decimals: "0.271", "50", "2,685".
std::string ThreeDigits(double number);
// "74.3 % (26 of 35)"; "0 % (0 of 0)".
std::string PercentOf(int64_t part, int64_t whole);

// JSON as `generate` prints it: in one line, of ASCII, whatever bytes the strings hold.
std::string OneLine(const nlohmann::json& json);

}  // namespace tandem

#endif  // TANDEM_TOOLS_REPORT_H_
