#ifndef TANDEM_TOOLS_TABLE_H_
#define TANDEM_TOOLS_TABLE_H_

#include <string>
#include <utility>
#include <vector>

namespace tandem {

// Text in columns, each as wide as its widest cell, aligned to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> headings) : rows_{std::move(headings)} {}
  // REQUIRES: as many cells as there are headings. Cells are ASCII.
  void AddRow(std::vector<std::string> cells);
  // Headings and rows, a line each, without blanks at their ends.
  std::string ToText() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// A median, and the least and greatest value it was taken of.
struct Spread {
  double median = 0.0;
  double low = 0.0;
  double high = 0.0;
};
// REQUIRES: `values` is not empty.
Spread SpreadOf(std::vector<double> values);

}  // namespace tandem

#endif  // TANDEM_TOOLS_TABLE_H_
