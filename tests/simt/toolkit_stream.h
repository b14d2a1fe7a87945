// The toolkit's stream of the device that is the host: what libraries of the toolkit are given.
#ifndef TANDEM_TESTS_SIMT_TOOLKIT_STREAM_H_
#define TANDEM_TESTS_SIMT_TOOLKIT_STREAM_H_

#include <functional>
#include <string>

#include "tests/simt/tensor_core_arithmetic.h"

namespace tandem::simt {

struct ToolkitStream {
  // Does `work`, which returns its fault or nothing, or takes it down where the stream records.
  // Returns 0, or an error.
  int (*enqueue)(std::function<std::string()> work) = nullptr;
  TensorCore core = kHopper;  // of the stream's device
};

}  // namespace tandem::simt

#endif  // TANDEM_TESTS_SIMT_TOOLKIT_STREAM_H_
