#include "tools/table.h"

#include <algorithm>

#include "base/check.h"

namespace tandem {

void Table::AddRow(std::vector<std::string> cells) {
  TANDEM_CHECK(cells.size() == rows_.front().size());
  rows_.push_back(std::move(cells));
}

std::string Table::ToText() const {
  std::vector<size_t> widths(rows_.front().size());
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows_) text += AlignedLine(row, widths);
  return text;
}

std::string AlignedLine(const std::vector<std::string>& cells, const std::vector<size_t>& widths) {
  constexpr size_t kGap = 2;
  std::string text;
  for (size_t i = 0; i < cells.size(); ++i) {
    const size_t blanks = std::max(widths[i], cells[i].size()) - cells[i].size();
    text.append(blanks + (i == 0 ? 0 : kGap), ' ');
    text += cells[i];
  }
  return text + '\n';
}

Spread SpreadOf(std::vector<double> values) {
  TANDEM_CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  const double median =
      values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  return {median, values.front(), values.back()};
}

}  // namespace tandem
