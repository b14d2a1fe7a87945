#include "engine/pool_identity.h"

#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace tandem {
namespace {

// Row 183 of the bug catalogue.
TEST(PoolIdentity, DependsOnEveryPart) {
  const PoolParts parts = {.build = "a",
                           .weights = "b",
                           .quantized = "c",
                           .arithmetic = "d",
                           .layout = {.num_layers = 2, .num_kv_heads = 3, .head_dim = 8}};
  std::vector<PoolParts> others(11, parts);
  others[0].build = "x";
  others[1].weights = "x";
  others[2].quantized = "x";
  others[3].arithmetic = "x";
  others[4].layout.num_layers = 3;
  others[5].layout.num_kv_heads = 2;
  others[6].layout.head_dim = 16;
  others[7].layout.page_size = 4;
  others[8].layout.dtype = KvDType::kBF16;
  others[9].layout.dtype = KvDType::kInt8;
  others[10].layout.state_size = 8;
  std::set<PoolId> ids = {PoolIdOf(parts)};
  for (const PoolParts& other : others) ids.insert(PoolIdOf(other));
  EXPECT_EQ(ids.size(), others.size() + 1);
  EXPECT_EQ(PoolIdOf(parts), PoolIdOf(PoolParts(parts)));
}

}  // namespace
}  // namespace tandem
