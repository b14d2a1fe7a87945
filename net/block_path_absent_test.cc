#include "gtest/gtest.h"
#include "net/link.h"

namespace tandem {
namespace {

TEST(BlockPathAbsent, TheErrorSaysHowToBuildWithUcx) {
  LinkOptions options;
  options.fabric = "ucx";
  EXPECT_EQ(Link::Open(options, nullptr).status(),
            absl::UnimplementedError("kv_transfer_fabric: must be tcp: this build has no UCX; "
                                     "build with -DTANDEM_UCX=ON"));
}

}  // namespace
}  // namespace tandem
