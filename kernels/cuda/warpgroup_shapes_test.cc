#include "kernels/cuda/warpgroup_shapes.h"

#include <algorithm>
#include <set>
#include <utility>

#include "gtest/gtest.h"

namespace tandem::cuda {
namespace {

TEST(WarpgroupShapes, TilesCoverRowsAndOutputsOnce) {
  for (const WideVariant& variant : kWideVariants) {
    const int cluster_tiles = variant.cluster * kWideOutputTiles;
    for (const int rows : {65, 256, 2048, 2049, 5000}) {
      for (const int num_tiles : {1, 8, 9, 60}) {
        const WideTiles tiles = WideTilesOf(rows, num_tiles, variant);
        std::set<std::pair<int, int>> found;
        for (int i = 0; i < tiles.count(); ++i) {
          const WideTile at = tiles.At(i);
          EXPECT_TRUE(at.row_tile % variant.row_tiles == 0 && at.row_tile * kTileRows < rows);
          EXPECT_TRUE(at.output_tile % cluster_tiles == 0 && at.output_tile < num_tiles);
          EXPECT_TRUE(found.insert({at.row_tile, at.output_tile}).second);
        }
        EXPECT_EQ(static_cast<int>(found.size()),
                  CeilDiv(rows, variant.row_tiles * kTileRows) * CeilDiv(num_tiles, cluster_tiles));
      }
    }
  }
}

// Blocks of 132 processors that run at the same time.
TEST(WarpgroupShapes, BlocksShareWeightsAndRows) {
  for (const int cluster : {1, 2}) {
    const WideTiles tiles = WideTilesOf(4096, 1792, {32, cluster});
    std::set<int> outputs, rows;
    for (int i = 0; i < WideClusters(132, cluster); ++i) {
      outputs.insert(tiles.At(i).output_tile);
      rows.insert(tiles.At(i).row_tile);
    }
    EXPECT_EQ(rows.size(), 8u);
    EXPECT_EQ(outputs.size(), cluster == 1 ? 17u : 9u);
  }
}

TEST(WarpgroupShapes, StagesFitOnAMultiprocessor) {
  constexpr int kMostBytes = 227 * 1024;  // of a block on Hopper
  for (const WideVariant& variant : kWideVariants) {
    const WideShared at = WideSharedOf(variant.row_tiles);
    EXPECT_EQ(at.weights % 1024, 0);
    EXPECT_EQ(at.stage_bytes % 1024, 0);
    EXPECT_EQ(at.weights + 16 * 1024, at.stage_bytes);
    EXPECT_LE(at.num_bytes, kMostBytes);
    EXPECT_EQ(variant.row_tiles % variant.cluster, 0);  // each block copies as many
  }
}

TEST(WarpgroupShapes, TilesFillTheDevice) {
  constexpr int kNumSms = 132, kTilesOf4096 = 256;
  const auto chosen = [](int rows, int num_tiles, int num_sms) {
    const WideVariant variant = WideVariantOf(rows, num_tiles, num_sms, 0);
    return std::pair(variant.row_tiles, variant.cluster);
  };
  EXPECT_EQ(chosen(65, kTilesOf4096, kNumSms), std::pair(8, 2));
  EXPECT_EQ(chosen(512, kTilesOf4096, kNumSms), std::pair(16, 2));  // 128 blocks
  EXPECT_EQ(chosen(2048, kTilesOf4096, kNumSms), std::pair(32, 2));
  EXPECT_EQ(chosen(65, 8, 1), std::pair(16, 1));  // no place for a second block
  for (int variant = 1; variant <= kNumWideVariants + 1; ++variant) {
    const WideVariant got = WideVariantOf(512, kTilesOf4096, kNumSms, variant);
    const WideVariant& expected = kWideVariants[std::min(variant, kNumWideVariants) - 1];
    EXPECT_EQ(std::pair(got.row_tiles, got.cluster),
              std::pair(expected.row_tiles, expected.cluster));
  }
}

TEST(WarpgroupShapes, GridsAreWholeClusters) {
  constexpr int kTilesOf4096 = 256;
  EXPECT_EQ(WideShape(512, kTilesOf4096, 132, {16, 1}).x, 128);
  EXPECT_EQ(WideShape(512, kTilesOf4096, 132, {16, 2}).x, 128);
  EXPECT_EQ(WideShape(2048, kTilesOf4096, 132, {32, 2}).x, 132);
  EXPECT_EQ(WideShape(2048, kTilesOf4096, 131, {32, 2}).x, 130);
  EXPECT_EQ(WideShape(2048, kTilesOf4096, 131, {32, 1}).x, 131);
  EXPECT_EQ(WideShape(2048, kTilesOf4096, 1, {32, 2}).x, 2);
  EXPECT_EQ(WideShape(65, 8, 132, {16, 2}).x, 2);
  EXPECT_EQ(WideShape(65, 8, 132, {16, 2}).cluster, 2);
}

}  // namespace
}  // namespace tandem::cuda
