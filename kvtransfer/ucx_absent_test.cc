#include <gtest/gtest.h>

#include "kvtransfer/transfer_testing.h"

namespace tandem {
namespace {

TEST(PageTransferWithoutUcx, ErrorSaysThatTheBuildHasNoUcx) {
  const absl::Status status = PageTransfer::Open(LoopbackOptions()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
  EXPECT_EQ(status.message(),
            "kv_transfer: this build has no UCX; install libucx-dev and build again");
}

}  // namespace
}  // namespace tandem
