// Faults of launches as the numbers that a device would return for them.
#ifndef TANDEM_TESTS_SIMT_LAUNCH_FAULTS_H_
#define TANDEM_TESTS_SIMT_LAUNCH_FAULTS_H_

#include <string>

#include "kernels/cuda/operations.h"

namespace tandem::simt {

// kNoError for no fault; else a number under which the text is kept for ErrorText (device.h).
cuda::Error RememberFault(const std::string& fault);

}  // namespace tandem::simt

#endif  // TANDEM_TESTS_SIMT_LAUNCH_FAULTS_H_
