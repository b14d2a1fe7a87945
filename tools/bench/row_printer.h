#ifndef TANDEM_TOOLS_BENCH_ROW_PRINTER_H_
#define TANDEM_TOOLS_BENCH_ROW_PRINTER_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tandem/json_value.h"
#include "tools/bench/measuring.h"

namespace tandem {

// A column of a table that shows a field of rows, which are JSON.
struct Column {
  const char* heading;
  const char* field;
  const char* format = nullptr;  // printf format of numbers; null for integers
  double scale = 1.0;            // factor of numbers
  size_t width = 0;              // the least width, for the cells of later rows
};

// Returns the text of a column in `row`. Numbers that are null or not finite become "-", lists
// "1x2", and a missing field "".
std::string CellOf(const JsonValue& row, const Column& column);

// The columns of operations and phases.
absl::Span<const Column> TimesColumns();

// Prints rows of a table one by one. A row with fields that the headings lack gets new headings.
class RowPrinter {
 public:
  // `columns` and `measuring` must outlive this object.
  RowPrinter(absl::Span<const Column> columns, Measuring* measuring)
      : columns_(columns), measuring_(*measuring) {}

  // Errors are those of Measuring::Print, which remembers them.
  void Print(const JsonValue& row);

  // Returns the text that Print writes.
  std::string TextOf(const JsonValue& row);

 private:
  struct Shown {
    const Column* column;
    size_t width;
  };

  const absl::Span<const Column> columns_;
  Measuring& measuring_;
  std::vector<Shown> shown_;
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_ROW_PRINTER_H_
