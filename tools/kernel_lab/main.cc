#include <cstdio>
#include <cstdlib>
#include <exception>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "tools/kernel_lab/lines.h"
#include "tools/kernel_lab/supervisor.h"

namespace tandem::kernel_lab {
namespace {

constexpr char kUsage[] = R"(kernel_lab [options]

Measures the device's kernels without a model, one line of the table after the other, and appends
one line of JSON for each to a file, which tools/kernel_lab_report.py reads.

  --out FILE       results [kernel_lab.jsonl]
  --seconds N      time for all lines; those that do not fit are named in the last line [540]
  --only REGEX     lines whose name contains a match
  --list           prints the lines with their planned seconds
  --quick          small shapes
  --device N       [0]
  --grace N        a line is stopped after four times its planned time and N seconds [12]
  --faults         adds lines that differ, fail, crash and hang, to try how these are reported
)";

[[noreturn]] void Refuse(const std::string& why) {
  std::fprintf(stderr, "kernel_lab: error: %s\n", why.c_str());
  std::exit(2);
}

double NumberOf(std::string_view option, const char* text, double most) {
  char* end = nullptr;
  const double number = std::strtod(text, &end);
  if (end == text || *end != '\0' || !(number >= 0.0 && number <= most)) {
    Refuse(std::string(option) + ": must be a number from 0 to " +
           std::to_string(static_cast<int>(most)) + ", got " + text);
  }
  return number;
}

std::regex RegexOf(const std::string& text) {
  try {
    return std::regex(text);
  } catch (const std::regex_error& error) {
    Refuse("--only: " + std::string(error.what()) + ": " + text);
  }
}

int Main(int argc, char** argv) {
  RunOptions options = {.out = "kernel_lab.jsonl"};
  std::string only;
  bool lists = false;
  std::vector<Line> all;
  for (int i = 1; i < argc; ++i) {
    const std::string_view option = argv[i];
    const auto value = [&] {
      if (i + 1 == argc) Refuse(std::string(option) + ": a value must follow");
      return argv[++i];
    };
    if (option == "--help") {
      std::fputs(kUsage, stdout);
      return 0;
    }
    if (option == "--list") {
      lists = true;
    } else if (option == "--faults") {
      all = FaultLines();
    } else if (option == "--grace") {
      options.grace_seconds = NumberOf(option, value(), 3600);
    } else if (option == "--quick") {
      options.quick = true;
    } else if (option == "--out") {
      options.out = value();
    } else if (option == "--only") {
      only = value();
    } else if (option == "--seconds") {
      options.seconds = NumberOf(option, value(), 86400);
    } else if (option == "--device") {
      options.device = static_cast<int>(NumberOf(option, value(), 63));
    } else {
      Refuse(std::string(option) + ": unknown option; see --help");
    }
  }
  const std::regex wanted = RegexOf(only);
  std::vector<Line> lines;
  const std::vector<Line> measured = AllLines(options.quick);
  all.insert(all.end(), measured.begin(), measured.end());
  for (Line& line : all) {
    if (std::regex_search(line.name, wanted)) lines.push_back(std::move(line));
  }
  if (lines.empty()) Refuse("--only: no line has a match: " + only);
  if (!lists) return RunLines(options, lines);
  for (const Line& line : lines) {
    std::printf("%8.3f  %s%s\n", line.seconds, line.name.c_str(),
                line.never_run ? "  (never run)" : "");
  }
  std::printf("%8.3f  seconds planned for %zu lines\n", PlannedSeconds(lines), lines.size());
  return 0;
}

}  // namespace
}  // namespace tandem::kernel_lab

int main(int argc, char** argv) { return tandem::kernel_lab::Main(argc, argv); }
