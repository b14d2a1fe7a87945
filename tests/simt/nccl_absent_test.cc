#include <gtest/gtest.h>

#include "kernels/cuda/nccl.h"

namespace tandem::cuda {
namespace {

TEST(NcclAbsent, SaysThatTheBuildDoesWithout) {
  const absl::Status status = Nccl::Open().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), "this build does not include NCCL");
}

}  // namespace
}  // namespace tandem::cuda
