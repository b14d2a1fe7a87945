#include "gtest/gtest.h"
#include "ranks/linked_ranks.h"

namespace tandem {
namespace {

TEST(LinkedRanksWithoutUcx, ReturnUnimplemented) {
  const absl::Status status =
      JoinLinkedRanks({.rank = 0, .world = 2, .rendezvous = "127.0.0.1:0"}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
  EXPECT_EQ(status.message(),
            "rendezvous: this build has no UCX; install libucx-dev and build again");
}

}  // namespace
}  // namespace tandem
