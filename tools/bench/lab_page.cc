#include "tools/bench/lab_page.h"

#include <algorithm>
#include <optional>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/format.h"
#include "base/string_view.h"
#include "server/api/web_files.h"
#include "tools/report.h"
#include "tools/standard_streams.h"

namespace tandem {

absl::Span<const WebFile> LabFiles();  // lab_page.js and lab_page.html (CMakeLists.txt)

namespace {

using Json = JsonValue;

// A cache whose measured speed is at most this factor of memory's is not a limit of its own: on a
// virtual machine other guests may fill it.
constexpr double kFasterThanMemory = 1.1;
// Prompts whose speed is at least this share of the best are on its plateau.
constexpr double kPlateau = 0.75;
// From this gain on a draft pays, as PairFindings::Verdict says.
constexpr double kPayingGain = 1.03;

// Return a field; 0, "" or no rows if it is missing or null.
double Number(const Json& row, const char* field) {
  const auto found = row.find(field);
  return found == row.end() || !found->is_number() ? 0.0 : found->get<double>();
}
std::string Text(const Json& row, const char* field) {
  const auto found = row.find(field);
  return found == row.end() || !found->is_string() ? "" : found->get<std::string>();
}
std::vector<Json> RowsOf(const Json& part, const char* field) {
  const auto found = part.find(field);
  if (found == part.end() || !found->is_array()) return {};
  return found->get<std::vector<Json>>();
}

// The limits of the machine, in bytes and in operations per second.
struct Roofs {
  double memory = 0.0;
  std::optional<double> cache = {};  // if it is faster than memory
  double peak = 0.0;                 // for the products of the target
  double reading = 0.0;              // of the target's weights
  bool is_cached = false;            // whether the cache is large enough for the target's weights

  explicit Roofs(const Json& report) {
    const Json& limits = report["limits"];
    memory = Number(limits["read_bytes_per_second"], "dram");
    const double read = Number(limits["read_bytes_per_second"], "cache");
    if (read > memory * kFasterThanMemory) cache = read;
    peak = Number(limits["flops"], Text(report["target"], "products").c_str());
    is_cached = Text(report["target"], "weights_in") == "cache";
    reading = is_cached ? cache.value_or(memory) : memory;
  }
  Json ToJson() const {
    return {{"memory", memory},
            {"cache", OrNull(cache)},
            {"peak", peak},
            {"reading", reading},
            {"is_cached", is_cached}};
  }
};

// "685 to 888 tokens/s from 64 tokens on".
std::string PlateauText(const std::vector<Json>& rows, double best) {
  const auto begin = absl::c_find_if(rows, [best](const Json& row) {
    return Number(row, "tokens_per_second") >= kPlateau * best;
  });
  double least = best;
  for (auto row = begin; row != rows.end(); ++row) {
    least = std::min(least, Number(*row, "tokens_per_second"));
  }
  const std::string low = ThreeDigits(least), high = ThreeDigits(best);
  if (least < kPlateau * best) return absl::StrCat("up to ", high, " tokens/s");
  return absl::StrCat(low == high ? "" : absl::StrCat(low, " to "), high, " tokens/s from ",
                      ThreeDigits(Number(*begin, "prompt_tokens")), " tokens on");
}

// Each of these returns a heading, or nothing without measurements.
std::optional<std::string> PromptFinding(const Json& report) {
  const std::vector<Json> rows = RowsOf(report["phases"], "prefill");
  if (rows.empty()) return std::nullopt;
  double best = 0.0;
  for (const Json& row : rows) best = std::max(best, Number(row, "tokens_per_second"));
  if (Text(rows.back(), "bound") == "arithmetic") {
    return absl::StrCat("Reading a prompt is limited by arithmetic: ", PlateauText(rows, best));
  }
  return absl::StrCat("Reading a prompt of ", ThreeDigits(Number(rows.back(), "prompt_tokens")),
                      " tokens is still limited by reading the weights: up to ", ThreeDigits(best),
                      " tokens/s");
}

std::optional<std::string> TokenFinding(const Json& report) {
  const std::vector<Json> rows = RowsOf(report["phases"], "decode");
  if (rows.empty()) return std::nullopt;
  const Json& first = rows.front();
  const std::string bound = Text(first, "bound");
  const double bytes = Number(first, "bytes");
  return absl::StrCat("Writing is limited by ",
                      bound == "memory"  ? "memory"
                      : bound == "cache" ? "reading the weights"
                                         : "arithmetic, too",
                      ": one token reads ", DecimalSize(static_cast<int64_t>(bytes)), ", at ",
                      ThreeDigits(Number(first, "bytes_per_second") * 1e-9), " GB/s that is ",
                      ThreeDigits(Number(first, "tokens_per_second")), " tokens/s");
}

// The passes of one sequence.
std::vector<Json> SinglePasses(const Json& report) {
  std::vector<Json> rows = RowsOf(report["passes"], "rows");
  std::erase_if(rows, [](const Json& row) { return Number(row, "batch") > 1; });
  return rows;
}

std::optional<std::string> PassFinding(const Json& report) {
  const std::vector<Json> rows = SinglePasses(report);
  if (rows.empty()) return std::nullopt;
  // The best bargain among the sizes of a draft's check.
  constexpr double kLargestCheck = 16;
  const Json* best = &rows.front();
  const auto bargain = [](const Json& row) {
    return Number(row, "rows") / Number(row, "of_one_row");
  };
  for (const Json& row : rows) {
    if (Number(row, "rows") <= kLargestCheck && bargain(row) > bargain(*best)) best = &row;
  }
  if (Number(*best, "rows") <= 1) return "A second token in a pass costs as much as the first";
  return Format("%.0f tokens in one pass take only %.2f times as long as one",
                Number(*best, "rows"), Number(*best, "of_one_row"));
}

std::optional<std::string> RooflineFinding(const Json& report) {
  std::vector<Json> rows = RowsOf(report["phases"], "decode");
  absl::c_move(SinglePasses(report), std::back_inserter(rows));
  absl::c_move(RowsOf(report["phases"], "prefill"), std::back_inserter(rows));
  if (rows.empty()) return std::nullopt;
  const double token = Number(rows.front(), "flops") / Number(rows.front(), "bytes_per_second");
  const Roofs roofs(report);
  const double ridge = roofs.peak / roofs.reading;
  const auto count = [](double operations) {
    return operations < 10 ? Format("%.1f", operations) : Format("%.0f", operations);
  };
  return absl::StrCat(
      "A token needs ", count(token), " operations for each byte it reads, ",
      token < ridge ? "and this machine has time for " : "and this machine has time for only ",
      count(ridge));
}

bool Pays(const Json& report) {
  return report["speculation"].is_object() && Number(report["speculation"], "gain") >= kPayingGain;
}

std::optional<std::string> SpeculationFinding(const Json& report) {
  const std::string missing = "The speed-up of speculation was not measured";
  if (report["draft"].is_null()) return missing + " without a draft";
  const Json& part = report["speculation"];
  if (!Text(part, "error").empty()) return missing;
  if (RowsOf(part, "all").empty()) return std::nullopt;
  const double k = Number(part, "best_draft_tokens");
  if (k == 0 || !Pays(report)) return "This draft does not make writing faster here";
  return Format(
      "A draft makes writing %.2f times as fast: it proposes %.0f token%s, and one pass checks %s",
      Number(part, "gain"), k, k == 1 ? "" : "s", k == 1 ? "it" : "them");
}

}  // namespace

std::vector<std::string> LabFindings(const JsonValue& report) {
  constexpr struct {
    const char* what;
    std::optional<std::string> (*finding)(const Json&);
  } kSections[] = {{"Reading a prompt", PromptFinding},
                   {"Writing", TokenFinding},
                   {"The size of a pass", PassFinding},
                   {"The roofline", RooflineFinding},
                   {"The speed-up of speculation", SpeculationFinding}};
  std::vector<std::string> findings;
  for (const auto& [what, finding] : kSections) {
    findings.push_back(
        finding(report).value_or(absl::StrCat(what, " was not measured: Ctrl-C came first")));
  }
  return findings;
}

std::string LabPage(const JsonValue& report) {
  const Json contents = {{"report", report},
                         {"findings", LabFindings(report)},
                         {"roofs", Roofs(report).ToJson()},
                         {"pays", Pays(report)}};
  // The page's parser of HTML sees no element in it.
  const std::string json = absl::StrReplaceAll(LineOf(contents), {{"<", "\\u003c"}});
  const absl::Span<const WebFile> files = LabFiles();
  const auto file = [files](std::string_view name) {
    return View(
        absl::c_find_if(files, [&](const WebFile& each) { return each.name == name; })->contents);
  };
  return absl::StrReplaceAll(file("lab_page.html"),
                             {{"/* base.css */", View(FindPageFile("base.css")->contents)},
                              {"/* lab_page.js */", file("lab_page.js")},
                              {"/* report */", json}});
}

}  // namespace tandem
