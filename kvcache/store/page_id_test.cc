#include "kvcache/store/page_id.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace tandem {
namespace {

TEST(PageId, HashDependsOnPartBoundaries) {
  const auto digest = [](const std::vector<absl::string_view>& parts) {
    PartHasher hasher;
    for (const absl::string_view part : parts) hasher.Add(part);
    return hasher.Finish();
  };
  const std::set<PartHasher::Digest> digests = {digest({"ab", "c"}), digest({"a", "bc"}),
                                                digest({"abc"}), digest({"abc", ""}), digest({})};
  EXPECT_EQ(digests.size(), 5);
}

// FIPS 180-4. Without parts the hashed text is empty.
TEST(PageId, IsSha256) {
  EXPECT_EQ(HexOf(PoolId{PartHasher().Finish()}),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(PageId, KeyDependsOnEverythingBeforeIt) {
  const PoolId pool = {PartHasher().Add("pool").Finish()};
  const PoolId other_pool = {PartHasher().Add("other").Finish()};
  const std::vector<TokenId> tokens = {1, 2, 3}, others = {1, 2, 4};
  std::set<PageKey> keys;
  for (const PageKey& root : {RootKey(pool, 0), RootKey(pool, 1), RootKey(other_pool, 0),
                              RootKey(pool, 0, "salt"), RootKey(pool, 0, "pepper")}) {
    keys.insert(root);
    for (const auto& first : {tokens, others}) {
      keys.insert(KeyAfter(root, first));
      keys.insert(KeyAfter(KeyAfter(root, first), tokens));
    }
  }
  EXPECT_EQ(keys.size(), 25);
}

}  // namespace
}  // namespace tandem
