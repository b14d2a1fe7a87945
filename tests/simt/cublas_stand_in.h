// Options of the stand-in for cuBLASLt, for tests that load it.
#ifndef TANDEM_TESTS_SIMT_CUBLAS_STAND_IN_H_
#define TANDEM_TESTS_SIMT_CUBLAS_STAND_IN_H_

#include <cstddef>
#include <vector>

namespace tandem::simt {

// One of the algorithms that the stand-in's heuristic returns, in order.
struct StandInAlgorithm {
  bool differs_in_one_bit = false;  // in the last row's last sum
  bool splits_inputs = false;       // into two sums that are added; returned only if requested
  size_t workspace_bytes = 0;
  int state = 0;   // of the heuristic's result
  int status = 0;  // of the product
};

struct StandInOptions {
  std::vector<StandInAlgorithm> algorithms = {{}};
  int min_rows = 0;  // fewest rows that algorithms can compute
  size_t version = 130100;
  int create_status = 0;
  int heuristic_status = 0;
};

struct StandInCounts {
  int products = 0;   // computed
  int alike = 0;      // of these, with rows whose numbers are all the same
  int handles = 0;    // open
  int described = 0;  // existing descriptors
};

// Types of the library's symbols.
using SetStandInOptions = void (*)(const StandInOptions& options);  // TandemSetStandIn
using GetStandInCounts = StandInCounts (*)();                       // TandemStandInCounts

}  // namespace tandem::simt

#endif  // TANDEM_TESTS_SIMT_CUBLAS_STAND_IN_H_
