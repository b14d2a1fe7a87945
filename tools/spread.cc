#include "tools/spread.h"

#include <algorithm>

#include "base/check.h"

namespace tandem {

Spread SpreadOf(std::vector<double> values) {
  TANDEM_CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  const double median =
      values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  return {median, values.front(), values.back()};
}

}  // namespace tandem
