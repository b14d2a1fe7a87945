// tandem bench: measurements, printed as tables or JSON.
#include <cmath>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/string_view.h"
#include "bench/bench_commands.h"
#include "nlohmann/json.hpp"
#include "tools/standard_output.h"

namespace tandem {
absl::StatusOr<std::vector<int>> ParseNumbers(std::string_view option, const std::string& list,
                                              int least, int most) {
  std::vector<int> numbers;
  for (const absl::string_view part : absl::StrSplit(list, ',')) {
    int number = 0;
    if (!absl::SimpleAtoi(part, &number) || number < least || number > most) {
      return absl::InvalidArgumentError(absl::StrCat(
          View(option), ": \"", part, "\" is not a number from ", least, " to ", most));
    }
    numbers.push_back(number);
  }
  return numbers;
}

absl::StatusOr<std::vector<std::string_view>> ParseNames(
    std::string_view option, const std::string& list,
    const std::vector<std::string_view>& allowed) {
  std::vector<std::string_view> names;
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(list, ','))) {
    const auto found = absl::c_find(allowed, part);
    if (found == allowed.end()) {
      return absl::InvalidArgumentError(absl::StrCat(
          View(option), ": \"", part, "\" is not one of ",
          absl::StrJoin(allowed, ", ",
                        [](std::string* out, std::string_view name) { out->append(name); })));
    }
    names.push_back(*found);
  }
  return names;
}

std::string FormatNumber(const char* format, double value) {
  if (!std::isfinite(value)) return "-";
  char text[32];
  std::snprintf(text, sizeof(text), format, value);
  return text;
}

absl::Status PrintJson(const nlohmann::ordered_json& json) {
  using Json = nlohmann::ordered_json;
  return Print(json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

Command AddBenchCommand(CLI::App* program) {
  CLI::App* app = program->add_subcommand("bench", "Measure how fast this machine decodes");
  const std::vector<Command> benchmarks = {AddBenchSpeculation(app), AddBenchKernels(app),
                                           AddBenchDevice(app), AddBenchPhases(app),
                                           AddBenchPerplexity(app)};
  const auto chosen = [benchmarks]() -> const Command* {
    const auto it = absl::c_find_if(benchmarks, [](const Command& c) { return c.app->parsed(); });
    return it == benchmarks.end() ? nullptr : &*it;
  };
  return {.app = app,
          .check = [app, chosen, benchmarks]() -> absl::Status {
            if (const Command* benchmark = chosen()) return benchmark->check();
            std::fputs(app->help("tandem").c_str(), stderr);
            return absl::InvalidArgumentError(absl::StrCat(
                "bench: name a benchmark: ",
                absl::StrJoin(benchmarks, ", ", [](std::string* out, const Command& benchmark) {
                  out->append(benchmark.app->get_name());
                })));
          },
          .run = [chosen] { return chosen()->run(); }};
}

}  // namespace tandem
