#include "tests/simt/sort_rows.h"

#include <algorithm>
#include <numeric>

namespace tandem::simt {

bool SortRows(const float* values, int num_rows, int size, int* places) {
  for (int r = 0; r < num_rows; ++r, values += size, places += size) {
    std::iota(places, places + size, 0);
    std::stable_sort(places, places + size,
                     [values](int left, int right) { return values[left] > values[right]; });
  }
  return true;
}

}  // namespace tandem::simt
