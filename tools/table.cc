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

}  // namespace tandem
