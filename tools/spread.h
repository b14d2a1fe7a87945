#ifndef TANDEM_TOOLS_SPREAD_H_
#define TANDEM_TOOLS_SPREAD_H_

#include <vector>

namespace tandem {

// A median, and the least and greatest value it was taken of.
struct Spread {
  double median = 0.0;
  double low = 0.0;
  double high = 0.0;
};
// REQUIRES: `values` is not empty.
Spread SpreadOf(std::vector<double> values);

}  // namespace tandem

#endif  // TANDEM_TOOLS_SPREAD_H_
