// The benchmarks of `tandem bench`, and helpers for their options and reports.
#ifndef TANDEM_TOOLS_BENCH_BENCH_COMMANDS_H_
#define TANDEM_TOOLS_BENCH_BENCH_COMMANDS_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/machine_load.h"
#include "tandem/engine.h"
#include "tandem/json_value.h"
#include "tools/bench/machine_limits.h"
#include "tools/command.h"
#include "tools/engine_options.h"
#include "tools/standard_streams.h"

namespace CLI {
class Option;
}

namespace tandem {

// Each adds its benchmark to `bench`.
Command AddBenchSpeculation(CLI::App* bench);
Command AddBenchKernels(CLI::App* bench);
Command AddBenchDevice(CLI::App* bench);
Command AddBenchPhases(CLI::App* bench);
Command AddBenchPerplexity(CLI::App* bench);

// Add options whose values are lists, and whose defaults are the variables' values. For numbers the
// help has the default after `text`; for names it has only `text`, which lists those allowed.
CLI::Option* AddNumbers(CLI::App* app, const std::string& name, std::vector<int>* numbers,
                        const std::string& text, int least, int most);
CLI::Option* AddNames(CLI::App* app, const std::string& name, std::vector<std::string>* names,
                      const std::string& text, const std::vector<std::string>& allowed);
// Names the making of MachineLimits on the line of Measuring.
inline constexpr char kPreparingLimits[] = "preparing memory for the limits of the machine";
// Returns the number of threads of an engine.
int ThreadsOf(const EngineOptions& options);
// Returns the options of an engine that decodes plainly, one sequence at a time. INVALID_ARGUMENT,
// with `reason`, if the flags name a draft or a drafter.
absl::StatusOr<EngineOptions> PlainEngineOptions(EngineFlags flags, std::string_view reason);

// ---- Reports: each row is JSON first, and tables show some of its fields (row_printer.h) ----

JsonValue MachineJson(int num_threads, const std::string& device);
JsonValue ModelJson(const ModelInfo& model);
// The time that `demand` took, compared with the limits.
JsonValue LimitedJson(const Demand& demand, const LimitedTime& time);
// Returns a line that says how busy other programs were, or "" if timings can be trusted.
std::string BusyLine(const OtherLoad& load);
// Returns `fields` with the fields of `more` added.
JsonValue With(JsonValue fields, const JsonValue& more);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_BENCH_COMMANDS_H_
