#include "kernels/cuda/warpgroup_shapes.h"

#include <set>
#include <utility>

#include "gtest/gtest.h"

namespace tandem::cuda {
namespace {

TEST(WarpgroupShapes, TilesCoverRowsAndOutputsOnce) {
  for (const int row_tiles : kWideRowTiles) {
    for (const int rows : {65, 256, 2048, 2049, 5000}) {
      for (const int num_tiles : {1, 8, 9, 60}) {
        const WideTiles tiles = WideTilesOf(rows, num_tiles, row_tiles);
        std::set<std::pair<int, int>> found;
        for (int i = 0; i < tiles.count(); ++i) {
          const WideTile at = tiles.At(i);
          EXPECT_TRUE(at.row_tile % row_tiles == 0 && at.row_tile * kTileRows < rows);
          EXPECT_TRUE(at.output_tile % kWideOutputTiles == 0 && at.output_tile < num_tiles);
          EXPECT_TRUE(found.insert({at.row_tile, at.output_tile}).second);
        }
        EXPECT_EQ(static_cast<int>(found.size()),
                  CeilDiv(rows, row_tiles * kTileRows) * CeilDiv(num_tiles, kWideOutputTiles));
      }
    }
  }
}

// Blocks of 132 processors that run at the same time.
TEST(WarpgroupShapes, BlocksShareWeightsAndRows) {
  const WideTiles tiles = WideTilesOf(4096, 1792, 32);
  std::set<int> outputs, rows;
  for (int i = 0; i < 132; ++i) {
    outputs.insert(tiles.At(i).output_tile);
    rows.insert(tiles.At(i).row_tile);
  }
  EXPECT_EQ(rows.size(), 8u);
  EXPECT_EQ(outputs.size(), 17u);
}

TEST(WarpgroupShapes, StagesFitOnAMultiprocessor) {
  constexpr int kMostBytes = 227 * 1024;  // of a block on Hopper
  for (const int row_tiles : kWideRowTiles) {
    const WideShared at = WideSharedOf(row_tiles);
    EXPECT_EQ(at.weights % 1024, 0);
    EXPECT_EQ(at.stage_bytes % 1024, 0);
    EXPECT_EQ(at.weights + 16 * 1024, at.stage_bytes);
    EXPECT_LE(at.num_bytes, kMostBytes);
  }
}

TEST(WarpgroupShapes, TilesFillTheDevice) {
  constexpr int kNumSms = 132, kTilesOf4096 = 256;
  EXPECT_EQ(WideRowTiles(65, kTilesOf4096, kNumSms, 0), 8);
  EXPECT_EQ(WideRowTiles(512, kTilesOf4096, kNumSms, 0), 16);  // 128 blocks
  EXPECT_EQ(WideRowTiles(2048, kTilesOf4096, kNumSms, 0), 32);
  EXPECT_EQ(WideShape(512, kTilesOf4096, kNumSms, 16).x, 128);
  EXPECT_EQ(WideShape(2048, kTilesOf4096, kNumSms, 32).x, kNumSms);
  for (int variant = 1; variant <= kNumWideRowTiles + 1; ++variant) {
    const int expected = variant <= kNumWideRowTiles ? variant - 1 : kNumWideRowTiles - 1;
    EXPECT_EQ(WideRowTiles(512, kTilesOf4096, kNumSms, variant), kWideRowTiles[expected]);
  }
}

}  // namespace
}  // namespace tandem::cuda
