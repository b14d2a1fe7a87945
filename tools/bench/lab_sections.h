// The sections of the page of `tandem lab`: sentences, charts and figures of a report (lab_page.h).
#ifndef TANDEM_TOOLS_BENCH_LAB_SECTIONS_H_
#define TANDEM_TOOLS_BENCH_LAB_SECTIONS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tandem/json_value.h"
#include "tools/bench/lab_chart.h"
#include "tools/bench/row_printer.h"

namespace tandem::lab {

// From this gain on a draft pays, as PairFindings::Verdict says.
inline constexpr double kPayingGain = 1.03;

struct Section {
  std::string heading = {};  // the finding, as a sentence
  std::vector<std::string> paragraphs = {};
  std::vector<Chart> charts = {};
  // The table of figures.
  absl::Span<const Column> columns = {};
  std::vector<JsonValue> rows = {};
  const JsonValue* part = nullptr;  // of the report, with LoadJson's fields; or null
};

// Returns the sections in the order of the page. They point into `report`.
std::vector<Section> SectionsOf(const JsonValue& report);

// The limits of the machine, in bytes and in operations per second.
struct Roofs {
  double memory = 0.0;
  std::optional<double> cache;  // if it is faster than memory
  double peak = 0.0;            // for the products of the target
  std::string input;            // of these products: "f32", "bf16", "int8"
  bool is_cached = false;       // whether the cache is large enough for the target's weights

  // The limit of reading the target's weights.
  double reading() const { return is_cached ? cache.value_or(memory) : memory; }
  // The least milliseconds that these limits allow for a row of the report.
  double LeastMs(const JsonValue& row) const;
  static Roofs Of(const JsonValue& report);
};

// Return a field; 0, "" or no rows if it is missing or null.
double Number(const JsonValue& row, const char* field);
std::string Text(const JsonValue& row, const char* field);
std::vector<JsonValue> RowsOf(const JsonValue& part, const char* field);

// Return texts: "96.4 MB", "13.5 GB/s", "42 %", and the last part of a model's path.
std::string Bytes(double bytes);
std::string BytesPerSecond(double rate);
std::string Percent(double share);
std::string NameOfModel(const JsonValue& model);

}  // namespace tandem::lab

#endif  // TANDEM_TOOLS_BENCH_LAB_SECTIONS_H_
