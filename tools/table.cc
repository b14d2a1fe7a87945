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
  constexpr size_t kGap = 2;
  std::string text;
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) {
      text.append(widths[i] - row[i].size() + (i == 0 ? 0 : kGap), ' ');
      text += row[i];
    }
    text += '\n';
  }
  return text;
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
