#include "tools/bench/row_printer.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tools/table.h"

namespace tandem {

using Json = JsonValue;

std::string CellOf(const Json& row, const Column& column) {
  const auto found = row.find(column.field);
  if (found == row.end()) return "";
  if (found->is_string()) return found->get<std::string>();
  if (found->is_array()) {
    return absl::StrJoin(
        *found, "x", [](std::string* out, const Json& each) { absl::StrAppend(out, each.dump()); });
  }
  if (column.format == nullptr) return found->dump();
  const double value = found->is_null() ? NAN : found->get<double>() * column.scale;
  if (!std::isfinite(value)) return "-";
  char text[32];
  std::snprintf(text, sizeof(text), column.format, value);
  return text;
}

absl::Span<const Column> TimesColumns() {
  constexpr size_t kOp = 9;     // "attention"
  constexpr size_t kPart = 13;  // "attention_out"
  constexpr size_t kShape = 12;
  constexpr size_t kTime = 9;
  static constexpr Column kColumns[] = {
      {"model", "model"},
      {"op", "op", nullptr, 1, kOp},
      {"pass", "what", nullptr, 1, 7},
      {"part", "part", nullptr, 1, kPart},
      {"dtype", "dtype", nullptr, 1, 6},
      {"prompt", "prompt_tokens"},
      {"position", "position"},
      {"rows", "rows", nullptr, 1, 5},
      {"batch", "batch"},
      {"context", "context"},
      {"shape", "shape", nullptr, 1, kShape},
      {"ms", "ms", "%.4f", 1, kTime},
      {"device ms", "device_ms", "%.4f"},
      {"tok/s", "tokens_per_second", "%.1f", 1, 8},
      {"of one row", "of_one_row", "%.3f"},
      {"flop/byte", "intensity", "%.2f"},
      {"GB/s", "bytes_per_second", "%.1f", 1e-9, 6},
      {"of bandwidth", "of_read", "%.3f"},
      {"TFLOP/s", "flops_per_second", "%.2f", 1e-12},
      {"Gflop/s", "flops", "%.1f", 1e-9},
      {"of limit", "of_limit", "%.3f"},
      {"bound by", "bound", nullptr, 1, 10},
      {"cuBLAS ms", "reference_ms", "%.4f"},
      {"cuBLAS TFLOP/s", "reference_flops_per_second", "%.1f", 1e-12}};
  return kColumns;
}

void RowPrinter::Print(const Json& row) { (void)measuring_.Print(TextOf(row)); }

std::string RowPrinter::TextOf(const Json& row) {
  const auto has = [&](const Column& column) { return row.contains(column.field); };
  const auto is_shown = [&](const Column& column) {
    return absl::c_any_of(shown_, [&](const Shown& shown) { return shown.column == &column; });
  };
  std::string text;
  std::vector<std::string> headings, cells;
  std::vector<size_t> widths;
  if (absl::c_any_of(columns_, [&](const auto& each) { return has(each) && !is_shown(each); })) {
    if (!shown_.empty()) text += '\n';
    shown_.clear();
    for (const Column& column : columns_) {
      if (!has(column)) continue;
      const size_t heading = absl::string_view(column.heading).size();
      shown_.push_back({&column, std::max({heading, column.width, CellOf(row, column).size()})});
      headings.emplace_back(column.heading);
    }
  }
  for (const Shown& shown : shown_) {
    cells.push_back(CellOf(row, *shown.column));
    widths.push_back(shown.width);
  }
  if (!headings.empty()) text += AlignedLine(headings, widths);
  return text + AlignedLine(cells, widths);
}

}  // namespace tandem
