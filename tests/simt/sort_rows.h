// Rows sorted by a library, as a reference for the sampler's cuts.
#ifndef TANDEM_TESTS_SIMT_SORT_ROWS_H_
#define TANDEM_TESTS_SIMT_SORT_ROWS_H_

namespace tandem::simt {

inline constexpr int kMaxSortedRows = 64;

// Writes the positions of each row's numbers in descending order; equal numbers (0 and -0 are
// equal) are in ascending order of position. Uses CUB on a device and the standard library on the
// host. Returns false if the device fails.
// REQUIRES: num_rows <= kMaxSortedRows.
//   values: [num_rows, size], without NaN   places: [num_rows, size]
bool SortRows(const float* values, int num_rows, int size, int* places);

}  // namespace tandem::simt

#endif  // TANDEM_TESTS_SIMT_SORT_ROWS_H_
