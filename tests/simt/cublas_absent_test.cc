#include <gtest/gtest.h>

#include "kernels/cuda/cublas_lt.h"

namespace tandem::cuda {
namespace {

TEST(CublasAbsent, SaysThatTheBuildDoesWithout) {
  const absl::Status status = CublasLt::Open().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), "this build does not include cuBLASLt");
}

}  // namespace
}  // namespace tandem::cuda
