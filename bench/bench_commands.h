// The benchmarks of `tandem bench`, and what their reports share.
#ifndef TANDEM_BENCH_BENCH_COMMANDS_H_
#define TANDEM_BENCH_BENCH_COMMANDS_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json_fwd.hpp"
#include "tools/command.h"

namespace tandem {

// Each adds its benchmark to `bench` (a file of its own, bench/bench_<name>_command.cc).
Command AddBenchSpeculation(CLI::App* bench);
Command AddBenchKernels(CLI::App* bench);
Command AddBenchDevice(CLI::App* bench);
Command AddBenchPhases(CLI::App* bench);
Command AddBenchPerplexity(CLI::App* bench);

// "1,2,8" as numbers, each in [least, most]. INVALID_ARGUMENT naming the option.
absl::StatusOr<std::vector<int>> ParseNumbers(std::string_view option, const std::string& list,
                                              int least, int most);
// "a,b" as some of `allowed`, as they stand there. INVALID_ARGUMENT naming the option.
absl::StatusOr<std::vector<std::string_view>> ParseNames(
    std::string_view option, const std::string& list, const std::vector<std::string_view>& allowed);

// `value` in printf's `format`, "-" if it is no number.
std::string FormatNumber(const char* format, double value);
// On standard output, in one line; errors as those of Print.
absl::Status PrintJson(const nlohmann::ordered_json& json);

}  // namespace tandem

#endif  // TANDEM_BENCH_BENCH_COMMANDS_H_
