// Launches on the host's device.
#ifndef TANDEM_TESTS_SIMT_LAUNCHES_H_
#define TANDEM_TESTS_SIMT_LAUNCHES_H_

#include <cstddef>
#include <functional>
#include <string>

#include "kernels/cuda/operations.h"
#include "tests/simt/tensor_core_arithmetic.h"

namespace tandem::simt {

// Does `work`, which returns its first fault or nothing, or takes it down where the device records
// (device.h). A fault is returned as the number that a device would return for it, under which
// ErrorText has its words.
cuda::Error Launch(std::function<std::string()> work);

// The tensor cores of a stream's device: below compute capability 9 Ampere's, else Hopper's, as
// without a stream.
TensorCore TensorCoreOf(cuda::Stream stream);

// Whether an allocation of so many bytes is to fail, out of memory; set by tests, else empty.
std::function<bool(size_t bytes)>& RefusesMemory();

}  // namespace tandem::simt

#endif  // TANDEM_TESTS_SIMT_LAUNCHES_H_
