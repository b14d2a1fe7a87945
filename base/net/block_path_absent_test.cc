#include "base/net/block_path.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

TEST(BlockPathAbsent, TheErrorSaysHowToBuildWithUcx) {
  EXPECT_EQ(BlockPath::Open("", nullptr).status(),
            absl::UnimplementedError("kv_transfer_fabric: must be tcp: this build has no UCX; "
                                     "build with -DTANDEM_UCX=ON"));
}

}  // namespace
}  // namespace tandem
