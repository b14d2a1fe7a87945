#ifndef TANDEM_TOOLS_TABLE_H_
#define TANDEM_TOOLS_TABLE_H_

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace tandem {

// A text table with right-aligned columns, each as wide as its widest cell.
class Table {
 public:
  explicit Table(std::vector<std::string> headings) : rows_{std::move(headings)} {}
  // REQUIRES: as many cells as there are headings. Cells are ASCII.
  void AddRow(std::vector<std::string> cells);
  // Returns the headings and rows, one per line, without trailing blanks.
  std::string ToText() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// Returns the cells as a line, each aligned to the right of its width.
std::string AlignedLine(const std::vector<std::string>& cells, const std::vector<size_t>& widths);

// The median of some values, and the lowest and the highest of them.
struct Spread {
  double median = 0.0;
  double low = 0.0;
  double high = 0.0;
};
// Returns the spread of `values`. REQUIRES: `values` is not empty.
Spread SpreadOf(std::vector<double> values);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TABLE_H_
