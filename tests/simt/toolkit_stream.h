// The toolkit's stream of a simulated device, which is passed to libraries of the toolkit.
#ifndef TANDEM_TESTS_SIMT_TOOLKIT_STREAM_H_
#define TANDEM_TESTS_SIMT_TOOLKIT_STREAM_H_

#include <functional>
#include <string>

#include "tests/simt/tensor_core_arithmetic.h"

namespace tandem::simt {

struct ToolkitStream {
  // Runs `work`, which returns its fault or an empty string, or stores it if the stream is
  // recording. Returns 0, or an error.
  int (*enqueue)(std::function<std::string()> work) = nullptr;
  TensorCore core = kHopper;  // of the stream's device
};

}  // namespace tandem::simt

#endif  // TANDEM_TESTS_SIMT_TOOLKIT_STREAM_H_
