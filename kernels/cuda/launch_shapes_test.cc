// Exhaustive checks of launch shapes and layouts: every output has exactly one place.
#include "kernels/cuda/launch_shapes.h"

#include <algorithm>
#include <set>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/kernel_testing.h"

namespace tandem::cuda {
namespace {

// Shared memory per block that every device since sm_80 has (sm_86 and sm_89 have the least).
constexpr int kSharedBytes = 99 * 1024;

TEST(LaunchShapes, EveryHeadOfARowHasAWarp) {
  for (int heads = 1; heads <= 200; ++heads) {
    const LaunchShape shape = HeadShape(3, heads, kMaxHeadDim);
    EXPECT_EQ(shape.x, 3);
    EXPECT_GE(shape.y * kHeadWarps, heads);
    EXPECT_LT((shape.y - 1) * kHeadWarps, heads);
    EXPECT_LE(shape.shared_bytes, 48 * 1024);
  }
}

TEST(LaunchShapes, ChainsCoverAllStepsInOrder) {
  constexpr int kUnit = kBlockChainSteps;
  for (int steps = 0; steps <= 2000; ++steps) {
    EXPECT_EQ(ChainBegin(0, steps), 0);
    EXPECT_EQ(ChainBegin(kChains, steps), steps);
    for (int chain = 0; chain < kChains; ++chain) {
      const int begin = ChainBegin(chain, steps);
      EXPECT_LE(begin, ChainBegin(chain + 1, steps));
      EXPECT_TRUE(begin % kUnit == 0 || begin == steps);
    }
  }
}

// Few rows and weights of bf16: parts of shared memory do not overlap, blocks of two kernels fit on
// an SM of Hopper, and an SM that has a tile for each of two warps or more has enough bytes in
// flight.
TEST(LaunchShapes, FewRowsKeepEnoughWeightsInFlight) {
  constexpr int kProcessorBytes = 227 * 1024, kNeeded = 26 * 1024, kOfABlock = 1024;
  for (int choice = 0; choice < kNumRowTileChoices; ++choice) {
    for (int variant = 0; variant < NumVariantsOfChoice(DType::kBF16, choice); ++variant) {
      const FewRowsVariant of = kFewRowsVariants[choice][variant];
      const int row_tiles = kRowTileChoices[choice],
                stage_bytes = of.stage_steps * kWeightStepBytes;
      for (const int num_tiles : {1, 131, 132, 133, 256, 384, 1792, 8016}) {
        const FewRowsPlan plan = FewRowsPlanOf(row_tiles * kTileRows, num_tiles, 132, variant);
        EXPECT_LE(plan.warps, of.most_warps);
        EXPECT_GE(plan.stages, 2);
        EXPECT_EQ(plan.rows, plan.warps * plan.stages * stage_bytes);
        EXPECT_EQ(plan.rows % 128, 0);
        EXPECT_EQ(plan.factors - plan.rows,
                  kRowStages * ChunkSteps(row_tiles) * row_tiles * kRowsStepBytes);
        EXPECT_EQ(plan.barriers - plan.factors, row_tiles * kTileRows * 4);
        EXPECT_EQ(plan.barriers % 8, 0);
        EXPECT_EQ(plan.num_bytes - plan.barriers, NumFewRowsBarriers(plan) * 8);
        EXPECT_LE(plan.num_bytes * of.blocks, kFewRowsBytes);
        EXPECT_LE((plan.num_bytes + kOfABlock) * of.blocks * 2, kProcessorBytes);
        if (num_tiles < 256) continue;
        const int in_flight = plan.warps * (plan.stages - 1) * stage_bytes * of.blocks;
        EXPECT_GE(in_flight, variant == 0 ? kNeeded : kNeeded / 2) << choice << " " << variant;
      }
    }
  }
}

TEST(LaunchShapes, VariantsAreDifferentAndAdjacent) {
  const auto same = [](const FewRowsVariant& a, const FewRowsVariant& b) {
    return a.stage_steps == b.stage_steps && a.most_warps == b.most_warps && a.blocks == b.blocks;
  };
  for (int choice = 0; choice < kNumRowTileChoices; ++choice) {
    const int count = NumVariantsOfChoice(DType::kBF16, choice);
    EXPECT_GE(count, 2);
    for (int i = 0; i < kMaxVariants; ++i) {
      EXPECT_EQ(kFewRowsVariants[choice][i].stage_steps > 0, i < count);
      for (int j = 0; j < i && i < count; ++j) {
        EXPECT_FALSE(same(kFewRowsVariants[choice][i], kFewRowsVariants[choice][j]));
      }
    }
  }
  EXPECT_EQ(NumVariants(DType::kBF16, 1), NumVariantsOfChoice(DType::kBF16, 0));
  EXPECT_EQ(NumVariants(DType::kBF16, 64), NumVariantsOfChoice(DType::kBF16, 3));
  EXPECT_EQ(NumVariants(DType::kQ4K, 8), 2);
  EXPECT_EQ(NumVariants(DType::kQ4K, 100), 1);
  EXPECT_EQ(NumVariants(DType::kF32, 1), 1);
}

std::vector<DType> PackedDTypes() {
  std::vector<DType> dtypes = {DType::kBF16};
  dtypes.insert(dtypes.end(), std::begin(kAllBlockDTypes), std::end(kAllBlockDTypes));
  return dtypes;
}

void ExpectCoversOnce(const LaunchShape& shape, ProductTiles tiles, int rows, int num_tiles) {
  EXPECT_GE(shape.y * tiles.outputs, num_tiles);
  EXPECT_LT((shape.y - 1) * tiles.outputs, num_tiles);
  EXPECT_GE(shape.x * tiles.rows * kTileRows, rows);
  EXPECT_LT((shape.x - 1) * tiles.rows * kTileRows, rows);
  EXPECT_LE(shape.shared_bytes, kSharedBytes);
}

TEST(LaunchShapes, ProductsCoverRowsAndTilesOnce) {
  for (int rows = 1; rows <= 300; ++rows) {
    for (const DType dtype : kAllBlockDTypes) {
      for (int variant = 0; variant < NumVariants(dtype, rows); ++variant) {
        const ProductTiles tiles = FewBlockRowsTiles(RowTilesFor(rows), variant);
        for (int num_tiles = 1; num_tiles <= 40; ++num_tiles) {
          ExpectCoversOnce(FewBlockRowsShape(dtype, rows, num_tiles, variant), tiles, rows,
                           num_tiles);
        }
        EXPECT_EQ(rows <= 32, FewBlockRowsShape(dtype, rows, 1, variant).x == 1 && tiles.rows <= 4);
      }
    }
    for (int variant = 0; variant < NumVariants(DType::kBF16, rows); ++variant) {
      const FewRowsPlan plan = FewRowsPlanOf(rows, 1000, 132, variant);
      const int group_rows = kRowTileChoices[RowTilesFor(rows)] * kTileRows;
      EXPECT_GE(plan.row_groups * group_rows, rows);
      EXPECT_LT((plan.row_groups - 1) * group_rows, rows);
    }
  }
}

// Blocks have tiles that differ in number by at most one, and only blocks with a tile are launched.
TEST(LaunchShapes, FewRowsDealOutTilesEvenly) {
  for (const int num_sms : {1, 7, 132}) {
    for (int num_tiles = 1; num_tiles <= 3000; num_tiles += 37) {
      const FewRowsPlan plan = FewRowsPlanOf(1, num_tiles, num_sms, 0);
      EXPECT_LE(plan.blocks, num_sms);
      EXPECT_EQ(plan.blocks, std::min(num_tiles, num_sms));
      EXPECT_EQ(plan.warps, std::min(CeilDiv(num_tiles, plan.blocks), kMostTileWarps));
      EXPECT_EQ(FewRowsShape(plan).threads, 32 * (plan.warps + 1));
    }
  }
}

TEST(LaunchShapes, BlocksForManyRowsCoverRowsAndTilesOnce) {
  for (const DType dtype : PackedDTypes()) {
    const ProductTiles tiles = ManyRowsTiles(dtype);
    for (int rows = 1; rows <= 600; ++rows) {
      for (int num_tiles = 1; num_tiles <= 40; ++num_tiles) {
        ExpectCoversOnce(ManyRowsShape(dtype, rows, num_tiles), tiles, rows, num_tiles);
        EXPECT_FALSE(rows <= 32 && HasManyRows(dtype, rows, num_tiles, 1));
      }
    }
  }
}

// On an H200, chunks of prompts use blocks for many rows if these fill the device.
TEST(LaunchShapes, BlocksForManyRowsAreUsedIfTheyFillTheDevice) {
  constexpr int kProcessors = 132;
  for (const DType dtype : PackedDTypes()) {
    for (const int outputs : {4096, 6144, 28672}) {
      EXPECT_TRUE(HasManyRows(dtype, 512, outputs / kTileOutputs, kProcessors)) << outputs;
    }
    EXPECT_TRUE(HasManyRows(dtype, 256, 28672 / kTileOutputs, kProcessors));
    EXPECT_FALSE(HasManyRows(dtype, 65, 512 / kTileOutputs, kProcessors));
    EXPECT_TRUE(HasManyRows(dtype, 1024, 132, kProcessors));  // the shape in product_test.cc
    EXPECT_TRUE(HasManyRows(dtype, 65, 9, 1));
  }
}

TEST(LaunchShapes, SmallestTilesThatHoldTheRowsAreUsed) {
  for (int rows = 1; rows <= 300; ++rows) {
    const int choice = RowTilesFor(rows);
    if (choice > 0) {
      EXPECT_GT(rows, kRowTileChoices[choice - 1] * kTileRows);
    }
    if (choice + 1 < kNumRowTileChoices) {
      EXPECT_LE(rows, kRowTileChoices[choice] * kTileRows);
    }
  }
}

TEST(LaunchShapes, FloatProductsAndPackedRowsCoverEverythingOnce) {
  for (int rows = 1; rows <= 40; ++rows) {
    for (int size = 1; size <= 300; ++size) {
      const LaunchShape product = FloatProductShape(rows, size);
      EXPECT_EQ(product.x, (size + kFloatWarps - 1) / kFloatWarps);
      EXPECT_EQ(product.y, (rows + kFloatRows - 1) / kFloatRows);
      const LaunchShape pack = PackRowsShape(rows, size);
      EXPECT_GE(pack.x * kPackWarps, size);
      EXPECT_LT((pack.x - 1) * kPackWarps, size);
      EXPECT_GE(pack.y * kTileRows, rows);
      EXPECT_LT((pack.y - 1) * kTileRows, rows);
    }
  }
}

TEST(LaunchShapes, AttentionHasAUnitForEveryVectorOfEverySequence) {
  for (const AttendSize size : kAttendSizes) {
    for (int heads = 1; heads <= 9; ++heads) {
      for (int batch = 1; batch <= 4; ++batch) {
        // Every distribution of few rows over the batch.
        std::vector<int> counts(batch, 0);
        for (;;) {
          int rows = 0, units = 0;
          for (const int count : counts) {
            rows += count;
            units += CeilDiv(count * heads, size.vectors);
          }
          EXPECT_LE(units, NumAttendUnits(rows, batch, heads, size.vectors));
          int i = 0;
          while (i < batch && counts[i] == 6) counts[i++] = 0;
          if (i == batch) break;
          ++counts[i];
        }
      }
    }
  }
}

TEST(LaunchShapes, AttentionFitsInSharedMemoryWithoutOverlap) {
  for (const AttendSize size : kAttendSizes) {
    const AttendShared at = AttendSharedOf(size);
    EXPECT_LE(at.num_words * 4, kSharedBytes);
    EXPECT_EQ(at.queries % 4, 0);  // read by 16 bytes
    EXPECT_EQ(at.weights % 4, 0);
    EXPECT_EQ(at.sums % 4, 0);
    EXPECT_EQ(at.sum_stride % 4, 0);
    EXPECT_EQ(at.places % 2, 0);
    EXPECT_EQ(size.vectors % 4, 0);
    EXPECT_GE(at.sum_stride, size.pass_dims());
    const int begins[] = {at.places, at.queries, at.weights, at.sums,    at.largest,
                          at.totals, at.factors, at.running, at.merging, at.num_words};
    for (int i = 0; i + 1 < 10; ++i) {
      const bool is_empty = i == 2 && size.tensor;
      EXPECT_EQ(begins[i] == begins[i + 1], is_empty);
      EXPECT_LE(begins[i], begins[i + 1]);
    }
  }
}

TEST(LaunchShapes, PromptAttentionFitsInSharedMemoryWithoutBankConflicts) {
  for (const int head_dim : {64, 128}) {
    const PromptShared at = PromptSharedOf(head_dim);
    EXPECT_LE(at.num_words * 4, kSharedBytes);
    EXPECT_EQ(at.queries % 4, 0);  // read by 16 bytes
    EXPECT_EQ(at.query_words % 4, 0);
    EXPECT_GE(at.stage_words, kAttendTile * at.value_stride);
    std::set<int> key_banks, value_banks;
    for (int lane = 0; lane < 32; ++lane) {
      key_banks.insert((lane % 4 * at.key_stride + lane / 4) % 32);
      value_banks.insert((lane % 4 * 2 * at.value_stride + lane / 4) % 32);
    }
    EXPECT_EQ(key_banks.size(), 32u);
    EXPECT_EQ(value_banks.size(), 32u);
  }
}

// On an H200, for a model with 32 heads in 8 groups: chunks of 256 tokens use the prompt kernel,
// and rounds of a whole batch do not.
TEST(LaunchShapes, PromptKernelIsUsedIfItFillsTheDevice) {
  const auto is_a_prompt = [](int rows, int batch, KvDType dtype, int head_dim) {
    AttendTask task;
    task.rows.num_rows = rows;
    task.rows.batch = batch;
    task.num_heads = 32;
    task.kv.num_kv_heads = 8;
    task.kv.head_dim = head_dim;
    task.kv.dtype = dtype;
    task.num_sms = 132;
    return HasPrompts(task);
  };
  EXPECT_TRUE(is_a_prompt(256, 1, KvDType::kBF16, 128));
  EXPECT_TRUE(is_a_prompt(208, 1, KvDType::kBF16, 8));  // the shape in attention_test.cc
  EXPECT_FALSE(is_a_prompt(100, 1, KvDType::kBF16, 128));
  EXPECT_FALSE(is_a_prompt(64 * 9, 64, KvDType::kBF16, 128));
  EXPECT_FALSE(is_a_prompt(256, 1, KvDType::kF32, 128));
  EXPECT_FALSE(is_a_prompt(256, 1, KvDType::kBF16, 160));
}

AttendTask RoundOn(int batch, int rows, int context, int num_sms) {
  AttendTask task;
  task.rows = {.batch = batch, .num_rows = batch * rows};
  task.num_heads = 32;
  task.kv.num_kv_heads = 8;
  task.kv.head_dim = 128;
  task.kv.dtype = KvDType::kBF16;
  task.num_sms = num_sms;
  task.num_splits = CeilDiv(context, kSplitPositions);
  task.decode_rows = DecodeRowsBesidePrompts(task);
  return task;
}

// On an H200, for a model with 32 heads in 8 groups.
TEST(LaunchShapes, PartsOfSplitsFitAndBlocksFillTheDevice) {
  constexpr int kProcessors = 132;
  EXPECT_EQ(PartSplitsFor(RoundOn(1, 5, 256, kProcessors), kSplitPartsBytes), 0);
  EXPECT_EQ(PartSplitsFor(RoundOn(1, 512, 4096, kProcessors), kSplitPartsBytes), 0);
  EXPECT_EQ(PartSplitsFor(RoundOn(64, 1, 4096, kProcessors), kSplitPartsBytes), 16);
  EXPECT_EQ(PartSplitsFor(RoundOn(1, 8, 1 << 18, kProcessors), kSplitPartsBytes), 342);
  for (const int batch : {1, 2, 3, 8, 16, 64, 200}) {
    for (const int rows : {1, 5, 9, 100}) {
      for (int context = 256; context <= 1 << 20; context *= 2) {
        AttendTask task = RoundOn(batch, rows, context, kProcessors);
        task.part_splits = PartSplitsFor(task, kSplitPartsBytes);
        EXPECT_LE(task.part_splits, kMaxSplits);
        if (task.part_splits > 0) {
          EXPECT_LE(SplitPartsBytes(task, NumPartSlots(task)), kSplitPartsBytes);
          continue;
        }
        const LaunchShape shape = AttendLaunchShape(kAttendSizes[AttendSizeOf(task)], task);
        const bool fills = task.num_splits == 1 || HasPrompts(task) ||
                           shape.num_blocks() >= kFullDevices * kProcessors;
        EXPECT_TRUE(fills) << batch << " x " << rows << " at " << context;
      }
    }
  }
}

TEST(LaunchShapes, AttentionVariantHoldsTheHead) {
  for (const KvDType dtype : kAllKvDTypes) {
    for (int head_dim = 1; head_dim <= kMaxHeadDim; ++head_dim) {
      for (const int vectors : {1, 4, 5, 100}) {
        const AttendSize size = kAttendSizes[AttendSizeFor(dtype, vectors, head_dim)];
        EXPECT_EQ(size.tensor, dtype == KvDType::kBF16);
        EXPECT_GE(size.head_dim, head_dim);
        EXPECT_LE(size.head_dim, head_dim <= 64 ? 64 : 2 * head_dim);
        EXPECT_EQ(size.vectors == 16, size.tensor || (vectors > 4 && head_dim <= 128));
      }
    }
  }
}

// The largest pass has a chunk of 65,536 tokens (--chunk-tokens) and a round of a whole batch; the
// largest vocabulary has less than 2^20 tokens.
TEST(LaunchShapes, GridsOfTheLargestPassFit) {
  constexpr int kRows = 65536 + 1024 * 33, kTiles = (1 << 20) / kTileOutputs;
  for (const DType dtype : PackedDTypes()) {
    EXPECT_TRUE(!IsBlocks(dtype) || FewBlockRowsShape(dtype, kRows, kTiles).fits());
    EXPECT_TRUE(ManyRowsShape(dtype, kRows, kTiles).fits());
  }
  EXPECT_TRUE(FewRowsShape(FewRowsPlanOf(kRows, kTiles, 132, 0)).fits());
  EXPECT_TRUE(FloatProductShape(kRows, 1 << 20).fits());
  EXPECT_TRUE(PackRowsShape(kRows, 1 << 16).fits());
  EXPECT_TRUE(EndSumsShape(kRows, kTiles).fits());
  EXPECT_TRUE(HeadShape(kRows, 1 << 16, kMaxHeadDim).fits());
  EXPECT_TRUE(RowShape(kRows).fits());
  AttendTask task = RoundOn(1024, 33, 1 << 28, 132);
  task.part_splits = kMaxSplits;
  EXPECT_TRUE(MergeSplitsShape(task).fits());
  float parts = 0.0f;
  task.parts = &parts;
  EXPECT_EQ(AttendLaunchShape(kAttendSizes[AttendSizeOf(task)], task).z, kMaxSplits);
  EXPECT_TRUE(AttendLaunchShape(kAttendSizes[AttendSizeOf(task)], task).fits());
}

// Sums that do not fit an int: 2^20 rows with 64 heads, in splits of a context of 2^28 positions.
TEST(LaunchShapes, LargeSizesDoNotOverflow) {
  AttendTask task = RoundOn(1, 1 << 20, 1 << 28, 132);
  task.num_heads = 64;
  task.kv.num_kv_heads = 1;
  EXPECT_EQ(NumAttendUnits(1 << 20, 1, 64, 16), (1 << 22) + 1);
  EXPECT_EQ(SplitPartsBytes(task, 1 << 10), (int64_t{1} << 38) * 130);
  EXPECT_EQ(PlanLayoutOf(task).few, int64_t{1} << 21);
  EXPECT_GT(FewBlockRowsShape(DType::kQ8_0, 1 << 30, 1 << 16).num_blocks(), INT32_MAX);
  EXPECT_FALSE(LaunchShape({.x = 1, .y = LaunchShape::kMaxYz + 1}).fits());
  EXPECT_FALSE(LaunchShape({.x = 1, .z = LaunchShape::kMaxYz + 1}).fits());
  EXPECT_TRUE(LaunchShape({.x = INT32_MAX, .y = LaunchShape::kMaxYz}).fits());
}

// ---- Layouts ----

TEST(ProductLayout, GivesEveryElementOfATileOnePlace) {
  std::set<std::pair<int, int>> weight_places, row_places;
  for (int half = 0; half < 2; ++half) {
    for (int lane = 0; lane < 32; ++lane) {
      for (int word = 0; word < 4; ++word) {
        const PlaceInTile place = WeightPlace(half, lane, word);
        for (int i = 0; i < 2; ++i) weight_places.insert({place.output, place.input + i});
      }
    }
  }
  EXPECT_EQ(weight_places.size(), size_t{kTileOutputs} * kStepInputs);
  EXPECT_EQ(*weight_places.rbegin(), std::pair(kTileOutputs - 1, kStepInputs - 1));
  for (int lane = 0; lane < 32; ++lane) {
    for (int word = 0; word < 4; ++word) {
      for (int i = 0; i < 2; ++i) row_places.insert({lane / 4, RowsInput(lane, word) + i});
    }
  }
  EXPECT_EQ(row_places.size(), size_t{kTileRows} * kStepInputs);
  EXPECT_EQ(*row_places.rbegin(), std::pair(kTileRows - 1, kStepInputs - 1));
}

// Elements of an image have their own places, which are adjacent for pairs and for the 16-byte
// parts of a row, and the parts of 8 rows that a warp reads at once lie in different banks.
TEST(ProductLayout, GivesEveryElementOfAnImageOnePlace) {
  for (const int rows : {1, 8, 9, 24}) {
    for (const int inputs : {1, 32, 64, 65, 200}) {
      const int num_tiles = CeilDiv(rows, kTileRows);
      std::vector<int> uses(RowsImageBytes(rows, inputs), 0);
      for (int row = 0; row < num_tiles * kTileRows; ++row) {
        for (int input = 0; input < CeilDiv(inputs, kChunkInputs) * kChunkInputs; ++input) {
          const int64_t offset = RowsImageOffset(num_tiles, row, input);
          ASSERT_TRUE(0 <= offset && offset + 2 <= static_cast<int64_t>(uses.size()));
          for (int i = 0; i < 2; ++i) ++uses[offset + i];
          EXPECT_EQ(offset - RowsImageOffset(num_tiles, row, input / 8 * 8), input % 8 * 2);
        }
      }
      EXPECT_EQ(std::count(uses.begin(), uses.end(), 1), static_cast<int64_t>(uses.size()));
    }
  }
  // A chunk of all rows is adjacent.
  EXPECT_EQ(RowsImageOffset(32, 0, 64), 32 * 1024);
  EXPECT_EQ(RowsImageOffset(32, 8, 64), 33 * 1024);
  EXPECT_EQ(RowsImageOffset(32, 11, 64 + 8 * 5 + 3), 33 * 1024 + 3 * 128 + (5 ^ 3) * 16 + 6);
  for (int part = 0; part < 8; ++part) {
    std::set<int64_t> banks;
    for (int row = 0; row < kTileRows; ++row) {
      banks.insert(RowsImageOffset(1, row, part * 8) % 128);
    }
    EXPECT_EQ(banks.size(), 8u);
  }
}

// Every number of every block format, and every scale, has its own place in a piece.
TEST(ProductLayout, GivesEveryPartOfAPieceOfBlocksOnePlace) {
  for (const DType dtype : kAllBlockDTypes) {
    const BlockTiles tiles = BlockTilesOf(dtype);
    std::vector<int> bits_used(tiles.piece_bytes(), 0);
    for (int step = 0; step < tiles.piece_steps(); ++step) {
      for (int output = 0; output < kTileOutputs; ++output) {
        for (int input = 0; input < kStepInputs; ++input) {
          const PlaceOfWhole at = WholePlace(output, input);
          const int low = tiles.numbers_at(step, at.lane);
          if (tiles.bits == 8) {
            bits_used[low + 4 * at.place + input % 4] += 8;
            continue;
          }
          bits_used[low + at.place / 2 * 4 + input % 4] += 4;
          if (tiles.bits == 6) bits_used[tiles.high_bits_at(step, at.lane) + input % 4] += 2;
        }
      }
    }
    for (int part = 0; part < (tiles.has_minimums ? 2 : 1); ++part) {
      const int begin = part == 0 ? tiles.scales_at() : tiles.minimums_at();
      for (int pair = 0; pair < kTileOutputs / 2; ++pair) {
        for (int step = 0; step < tiles.piece_steps(); ++step) {
          for (int i = 0; i < tiles.scale_record_bytes(); ++i) {
            bits_used[begin + tiles.record_at(step, pair) + i] += 8;
          }
        }
        for (int i = 0; tiles.has_factors() && i < 4; ++i) {
          bits_used[begin + tiles.common_at(pair) + i] += 8;
        }
      }
    }
    for (const int bits : bits_used) EXPECT_EQ(bits, 8) << NameOf(dtype);
    EXPECT_EQ(tiles.piece_bytes() % 16, 0);
  }
}

}  // namespace
}  // namespace tandem::cuda
