// Rows sorted by a library: a reference for cuts.
#ifndef TANDEM_TESTS_SIMT_SORT_ROWS_H_
#define TANDEM_TESTS_SIMT_SORT_ROWS_H_

namespace tandem::simt {

inline constexpr int kMaxSortedRows = 64;

// The places of each row's numbers from the largest on, of equals the lowest first; 0 and -0 are
// equal. On a device by CUB, on the host by the standard library. False if the device fails.
// REQUIRES: num_rows <= kMaxSortedRows.
//   values: [num_rows, size], without NaN   places: [num_rows, size]
bool SortRows(const float* values, int num_rows, int size, int* places);

}  // namespace tandem::simt

#endif  // TANDEM_TESTS_SIMT_SORT_ROWS_H_
