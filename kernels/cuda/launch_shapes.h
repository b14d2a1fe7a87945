// The number of blocks of each kernel, and how work is divided among them. Each kernel has one
// function, which depends only on numbers that a captured graph may freeze (rows and batch of a
// bucket, sizes of weights), never on lengths.
#ifndef TANDEM_KERNELS_CUDA_LAUNCH_SHAPES_H_
#define TANDEM_KERNELS_CUDA_LAUNCH_SHAPES_H_

#include "kernels/cuda/operations.h"
#include "kernels/cuda/product_layout.h"
#include "kernels/cuda/variants.h"

namespace tandem::cuda {

// ---- Rows ----

inline constexpr int kRowThreads = 256;
inline constexpr int kAngleThreads = 64;
inline constexpr int kHeadWarps = 4;

// One block per row. Shared memory has the sums of warps, or the chains of a sum of squares.
inline constexpr int kSquareChains = 32;
inline constexpr LaunchShape RowShape(int rows) {
  return {.x = rows, .y = 1, .z = 1, .shared_bytes = kSquareChains * 4};
}
// Shared memory of a reduction over a block of 1024 threads: storage for CUB, and the result.
inline constexpr int kScratchThreads = 1024;
struct BlockScratch {
  alignas(32) uint64_t storage[48];  // as CUB's collectives require
  uint64_t result;
};
// One block per row of the vocabulary. Four loads of 16 bytes per thread keep 64 KB in flight;
// without that, half a megabyte took longer than a small product.
inline constexpr int kLargestThreads = kScratchThreads;
inline constexpr LaunchShape ArgMaxShape(int rows) {
  return {.x = rows, .y = 1, .z = 1, .shared_bytes = sizeof(BlockScratch)};
}
// One block per row of the vocabulary, or per slot.
inline constexpr int kSamplingThreads = kScratchThreads;
inline constexpr int kSamplingDigits = 256;
struct SamplingScratch {
  uint64_t sums[kSamplingThreads / 16];
  uint64_t found[3];
  BlockScratch of_block;
};
inline constexpr LaunchShape SlotShape(int slots) {
  return {.x = slots, .y = 1, .z = 1, .shared_bytes = sizeof(SamplingScratch)};
}
// After the scratch memory, shared memory has [copies][halves][digits] of 32 bits.
inline constexpr LaunchShape DistributionShape(int rows, const DistributionVariant& variant) {
  const int histograms = variant.copies * kSamplingDigits * 8;
  return {.x = rows,
          .y = 1,
          .z = 1,
          .shared_bytes = static_cast<int>(sizeof(SamplingScratch)) + histograms};
}
inline constexpr LaunchShape DrawnShape(int count) { return {.x = CeilDiv(count, kRowThreads)}; }
// One warp for each head of each row. Shared memory has the elements of the heads.
inline constexpr LaunchShape HeadShape(int rows, int num_heads, int head_dim) {
  return {.x = rows,
          .y = CeilDiv(num_heads, kHeadWarps),
          .z = 1,
          .shared_bytes = kHeadWarps * head_dim * 4};
}

// ---- Products ----

// The inputs of a product with weights of block formats are divided into kChains chains, whatever
// the number of rows. Warp w has steps [ChainBegin(w), ChainBegin(w + 1)), which are whole pieces.
inline constexpr int kChains = 8;
inline constexpr int ChainSteps(int num_steps) {
  return CeilDiv(num_steps, kChains * kBlockChainSteps) * kBlockChainSteps;
}
inline constexpr int ChainBegin(int chain, int num_steps) {
  const int begin = chain * ChainSteps(num_steps);
  return begin < num_steps ? begin : num_steps;
}

// Few rows and weights of bf16. Block b of `blocks` has tiles b, b + blocks, ..., so that blocks
// differ by at most one tile; its warps take these in turn. One more warp copies the rows for all
// of them, a chunk of steps at a time.
struct FewRowsPlan {
  int row_groups;  // of kRowTileChoices tiles
  int blocks;      // for each group
  int warps;       // that multiply
  int stages;      // in flight or being read, for each of them
  // Offsets in shared memory, after the warps' stages.
  int rows;      // [kRowStages][chunk steps / 2][row tiles][kRowTileBytes]
  int factors;   // [row tiles * kTileRows]
  int barriers;  // of stages, of chunks that are full, of chunks that are empty, of the factors
  int num_bytes;
};
inline constexpr int kRowStages = 3;  // chunks: one being read, one ready, one in flight
inline constexpr int kMostStages = 16;
// With this much shared memory, blocks of two neighbouring kernels fit on a multiprocessor of
// Hopper, and one on any device. To cover 700 ns at 4.8 TB/s, each of 132 multiprocessors needs
// 26 KB of weights in flight.
inline constexpr int kFewRowsBytes = 99 * 1024;
inline constexpr int ChunkSteps(int row_tiles) { return row_tiles <= 2 ? 8 : 4; }
inline constexpr int NumFewRowsBarriers(const FewRowsPlan& plan) {
  return plan.warps * plan.stages + 2 * kRowStages + 1;
}
inline constexpr FewRowsPlan FewRowsPlanOf(int rows, int num_tiles, int num_sms, int variant) {
  const int row_tiles = kRowTileChoices[RowTilesFor(rows)];
  const FewRowsVariant of = kFewRowsVariants[RowTilesFor(rows)][variant];
  FewRowsPlan plan{};
  plan.row_groups = CeilDiv(rows, row_tiles * kTileRows);
  plan.blocks = num_tiles < num_sms * of.blocks ? num_tiles : num_sms * of.blocks;
  const int tiles = plan.blocks == 0 ? 1 : CeilDiv(num_tiles, plan.blocks);
  plan.warps = tiles < of.most_warps ? tiles : of.most_warps;
  const int row_bytes = kRowStages * ChunkSteps(row_tiles) / 2 * row_tiles * kRowTileBytes;
  const int small_bytes = row_tiles * kTileRows * 4 + (2 * kRowStages + 1) * 8;
  const int stage_bytes = plan.warps * (of.stage_steps * kWeightStepBytes + 8);
  plan.stages = (kFewRowsBytes / of.blocks - row_bytes - small_bytes) / stage_bytes;
  if (plan.stages > kMostStages) plan.stages = kMostStages;
  plan.rows = plan.warps * plan.stages * of.stage_steps * kWeightStepBytes;
  plan.factors = plan.rows + row_bytes;
  plan.barriers = plan.factors + row_tiles * kTileRows * 4;
  plan.num_bytes = plan.barriers + NumFewRowsBarriers(plan) * 8;
  return plan;
}
inline constexpr LaunchShape FewRowsShape(const FewRowsPlan& plan) {
  return {.x = plan.row_groups,
          .y = plan.blocks,
          .z = 1,
          .shared_bytes = plan.num_bytes,
          .threads = (plan.warps + 1) * 32};
}

// The part of a product that one block computes: tiles of rows times tiles of outputs.
struct ProductTiles {
  int rows;
  int outputs;
};
// Few rows and weights of block formats. Each block reads all rows from L2, whose bandwidth is not
// many times that of memory. So a block has enough outputs that up to 16 rows are at most half of
// its bytes.
inline constexpr ProductTiles FewBlockRowsTiles(int choice, int variant = 0) {
  const int rows = kRowTileChoices[choice];
  return {rows < 4 ? rows : 4, kBlocksVariants[BlocksChoice(choice)][variant].output_tiles};
}
// With up to 8 rows, the registers of three blocks fit on an SM.
inline constexpr int FewBlockRowsBytes(DType dtype, int choice, int variant) {
  const ProductTiles tiles = FewBlockRowsTiles(choice, variant);
  const int ring = kChains * kBlocksVariants[BlocksChoice(choice)][variant].stages * tiles.outputs *
                   BlockTilesOf(dtype).piece_bytes();
  // Sums for each chain, and factors.
  const int sums = (kChains * tiles.outputs * kTileOutputs + 1) * tiles.rows * kTileRows * 4;
  return ring > sums ? ring : sums;
}
// Blocks that share a weight are consecutive, so that it is read from memory once.
inline constexpr LaunchShape ProductShape(ProductTiles tiles, int rows, int num_tiles,
                                          int shared_bytes) {
  return {.x = CeilDiv(rows, tiles.rows * kTileRows),
          .y = CeilDiv(num_tiles, tiles.outputs),
          .z = 1,
          .shared_bytes = shared_bytes};
}
inline constexpr LaunchShape FewBlockRowsShape(DType dtype, int rows, int num_tiles,
                                               int variant = 0) {
  const int choice = RowTilesFor(rows);
  return ProductShape(FewBlockRowsTiles(choice, variant), rows, num_tiles,
                      FewBlockRowsBytes(dtype, choice, variant));
}

// Many rows: the warps of a block form a grid, kWarpsAcross of them along its outputs.
inline constexpr int kManyRowsWarps = 8;
inline constexpr int kWarpsAcross = 2;
inline constexpr int kManyRowsOutputTiles = 8;
inline constexpr int kManyRowsRowTiles = 16;
inline constexpr int kBlockManyRowTiles = 8;   // for weights of block formats: sums are scaled
inline constexpr int kBlockManyRowStages = 3;  // pieces of every tile, for these weights
inline constexpr int kManyRowsRingBytes = 64 * 1024;  // stages in flight or being read
inline constexpr ProductTiles ManyRowsTiles(DType dtype) {
  return {IsBlocks(dtype) ? kBlockManyRowTiles : kManyRowsRowTiles, kManyRowsOutputTiles};
}
inline constexpr int BlockManyRowsStageBytes(const BlockTiles& tiles) {
  return kManyRowsOutputTiles * tiles.piece_bytes() +
         kBlockManyRowTiles * tiles.piece_steps() * kWholeRowsStepBytes;
}
inline constexpr LaunchShape ManyRowsShape(DType dtype, int rows, int num_tiles) {
  return ProductShape(ManyRowsTiles(dtype), rows, num_tiles,
                      IsBlocks(dtype)
                          ? kBlockManyRowStages * BlockManyRowsStageBytes(BlockTilesOf(dtype))
                          : kManyRowsRingBytes);
}
// Bytes that a block reads per step.
inline constexpr int64_t BlockBytes(ProductTiles tiles, DType dtype) {
  if (!IsBlocks(dtype)) return tiles.rows * kRowsStepBytes + tiles.outputs * kWeightStepBytes;
  const BlockTiles weight = BlockTilesOf(dtype);
  return tiles.rows * kWholeRowsStepBytes +
         tiles.outputs * weight.piece_bytes() / weight.piece_steps();
}
// Bytes that an SM reads per step with the blocks for few rows, times the number of SMs.
inline constexpr int64_t FewRowsStepBytes(DType dtype, int rows, int num_tiles, int num_sms) {
  if (IsBlocks(dtype)) {
    return BlockBytes(FewBlockRowsTiles(RowTilesFor(rows)), dtype) *
           FewBlockRowsShape(dtype, rows, num_tiles).num_blocks();
  }
  const FewRowsPlan plan = FewRowsPlanOf(rows, num_tiles, num_sms, 0);
  const int tiles = CeilDiv(num_tiles, plan.blocks);
  const int row_bytes = kRowTileChoices[RowTilesFor(rows)] * kRowsStepBytes;
  const int64_t waves = (FewRowsShape(plan).num_blocks() + num_sms - 1) / num_sms;
  return waves * num_sms * (tiles * kWeightStepBytes + CeilDiv(tiles, plan.warps) * row_bytes);
}
// Whether the blocks for many rows take less time than those for few rows. The time is bound by the
// bytes that an SM reads from L2. Blocks for few rows read more in all, but spread evenly over the
// SMs.
inline constexpr bool HasManyRows(DType dtype, int rows, int num_tiles, int num_sms) {
  if (RowTilesFor(rows) != kNumRowTileChoices - 1 || num_tiles == 0) return false;
  const ProductTiles many = ManyRowsTiles(dtype);
  const int64_t waves =
      (ManyRowsShape(dtype, rows, num_tiles).num_blocks() + num_sms - 1) / num_sms;
  return BlockBytes(many, dtype) * waves * num_sms <=
         FewRowsStepBytes(dtype, rows, num_tiles, num_sms);
}

// One warp packs one step of a tile of rows.
inline constexpr int kPackWarps = 8;
inline constexpr LaunchShape PackRowsShape(int rows, int num_steps) {
  return {.x = CeilDiv(num_steps, kPackWarps),
          .y = CeilDiv(rows, kTileRows),
          .z = 1,
          .shared_bytes = 0};
}

// One thread for each pair of inputs of an output. Most weights have too many outputs for y.
inline constexpr LaunchShape PackOutputsShape(int outputs, int inputs) {
  return {.x = outputs, .y = CeilDiv(NumSteps(inputs) * kStepInputs / 2, kRowThreads)};
}

// One thread for each output of a row.
inline constexpr LaunchShape EndSumsShape(int rows, int num_tiles) {
  return {.x = rows, .y = CeilDiv(num_tiles * kTileOutputs, kRowThreads)};
}

// At most two blocks for each multiprocessor of a large device.
inline constexpr LaunchShape CountDifferencesShape(int64_t num_words) {
  constexpr int kMaxBlocks = 256;
  const int64_t blocks = (num_words + kRowThreads - 1) / kRowThreads;
  return {.x = blocks < kMaxBlocks ? static_cast<int>(blocks) : kMaxBlocks};
}
inline constexpr int NumDifferenceCounts(int64_t num_words) {
  return CountDifferencesShape(num_words).x * kRowThreads / 32;
}

// One warp for each output and kFloatRows rows.
inline constexpr int kFloatWarps = 8;
inline constexpr int kFloatRows = 4;
inline constexpr LaunchShape FloatProductShape(int rows, int outputs) {
  return {.x = CeilDiv(outputs, kFloatWarps),
          .y = CeilDiv(rows, kFloatRows),
          .z = 1,
          .shared_bytes = 0};
}

// ---- Attention ----

// A split is 256 positions; each warp scores a tile of 32 of them.
inline constexpr int kAttendTile = 32;
inline constexpr int kSplitTiles = 8;
inline constexpr int kAttendWarps = kSplitTiles;
inline constexpr int kSplitPositions = kAttendTile * kSplitTiles;

// A variant of the attention kernel: the query vectors of a block (rows of one sequence times heads
// of one group), the largest head size, and whether it uses tensor cores.
struct AttendSize {
  int vectors;
  int head_dim;
  bool tensor;

  // Elements of values summed in one pass: their sums must fit into shared memory.
  constexpr int pass_dims() const { return tensor && head_dim > 128 ? 128 : head_dim; }
};
inline constexpr AttendSize kAttendSizes[] = {{4, 64, false},   {16, 64, false}, {4, 128, false},
                                              {16, 128, false}, {4, 256, false}, {16, 64, true},
                                              {16, 128, true},  {16, 256, true}};
inline constexpr int kNumAttendSizes = 8;
inline constexpr int kMaxHeadDim = 256;
// Returns the index in kAttendSizes of the variant for about `vectors` vectors per sequence. Tensor
// cores always compute 16 vectors, even for one.
inline constexpr int AttendSizeFor(KvDType dtype, int vectors, int head_dim) {
  if (dtype == KvDType::kBF16) return head_dim > 128 ? 7 : head_dim > 64 ? 6 : 5;
  if (head_dim > 128) return 4;
  return (head_dim > 64 ? 2 : 0) + (vectors > 4 ? 1 : 0);
}
inline constexpr int AttendSizeOf(const AttendTask& task) {
  const int heads = task.num_heads / task.kv.num_kv_heads;
  return AttendSizeFor(task.kv.dtype, task.rows.num_rows * heads / task.rows.batch,
                       task.kv.head_dim);
}

// Layout of a block's shared memory: offsets in words of 4 bytes.
struct AttendShared {
  int places;      // [warps][tile] of 8 bytes: of values; with tensor cores, also of keys
  int scales;      // [warps][tile]: of values; unused with tensor cores
  int queries;     // [head_dim][vectors]; with tensor cores, [head_dim / 16][lanes] of 16 bytes
  int weights;     // [warps][tile][vectors]; unused with tensor cores
  int sums;        // [warps][vectors][sum_stride]
  int sum_stride;  // with a gap for tensor cores, so that lanes store to different banks
  int largest;     // [warps][vectors]: largest scores
  int totals;      // [warps][vectors]: sums of weights
  int factors;     // [warps][vectors]
  int running;     // [2][vectors]: the largest score and the sum of weights of the splits so far
  int merging;     // [2][vectors]: the factors of the sums so far and of the split's
  int num_words;
};
inline constexpr AttendShared AttendSharedOf(AttendSize size) {
  AttendShared at{};
  const int states = kAttendWarps * size.vectors;
  at.sum_stride = size.pass_dims() + (size.tensor ? 16 : 0);
  at.places = 0;
  at.scales = at.places + (size.tensor ? 4 : 2) * kAttendWarps * kAttendTile;
  at.queries = at.scales + (size.tensor ? 0 : kAttendWarps * kAttendTile);
  at.weights = at.queries + size.head_dim * size.vectors / (size.tensor ? 2 : 1);
  at.sums = at.weights + (size.tensor ? 0 : kAttendWarps * kAttendTile * size.vectors);
  at.largest = at.sums + states * at.sum_stride;
  at.totals = at.largest + states;
  at.factors = at.totals + states;
  at.running = at.factors + states;
  at.merging = at.running + 2 * size.vectors;
  at.num_words = at.merging + 2 * size.vectors;
  return at;
}

// Attention of prompts to a cache of bf16: each warp has as many vectors as tensor cores take, and
// all positions. The warps of a block read the positions together.
inline constexpr int kTensorVectors = 16;
inline constexpr int kPromptWarps = 4;
inline constexpr int kPromptVectors = kPromptWarps * kTensorVectors;
inline constexpr int kPromptMaxHeadDim = 128;
struct PromptShared {
  int places;  // [2][split positions] of 8 bytes: of keys, then of values
  // [2][stage_words]: keys [head_dim / 2][key_stride] or values [tile][value_stride]
  int stages;
  int stage_words;
  int key_stride;  // with these strides lanes read different banks
  int value_stride;
  int queries;       // [warps][head_dim / 16][lanes] of 16 bytes
  int query_words;   // per warp
  int weights;       // [warps][split tiles][8][lanes]
  int weight_words;  // per warp
  int states;       // [warps]: largest, totals, factors [split tiles][16], running, merging [2][16]
  int state_words;  // per warp
  int num_words;
};
inline constexpr PromptShared PromptSharedOf(int head_dim) {
  PromptShared at{};
  at.key_stride = kAttendTile + 8;
  at.value_stride = head_dim / 2 + 4;
  at.stage_words = head_dim / 2 * at.key_stride;
  at.query_words = head_dim / 16 * 32 * 4;
  at.weight_words = kSplitTiles * 8 * 32;
  at.state_words = (3 * kSplitTiles + 4) * kTensorVectors;
  at.places = 0;
  at.stages = at.places + 2 * 2 * kSplitPositions;
  at.queries = at.stages + 2 * at.stage_words;
  at.weights = at.queries + kPromptWarps * at.query_words;
  at.states = at.weights + kPromptWarps * at.weight_words;
  at.num_words = at.states + kPromptWarps * at.state_words;
  return at;
}
// Whether the prompt kernel is used: on average, sequences have enough vectors for whole blocks,
// and these blocks fill the device. Otherwise splits with blocks of their own take less time.
// Sequences with fewer vectors, which decode next to a prompt, always use such splits.
inline constexpr bool HasPrompts(const AttendTask& task) {
  if (task.kv.dtype != KvDType::kBF16 || task.kv.head_dim > kPromptMaxHeadDim) return false;
  const int64_t vectors = int64_t{task.rows.num_rows} * (task.num_heads / task.kv.num_kv_heads);
  return vectors >= int64_t{task.rows.batch} * kPromptVectors &&
         vectors / kPromptVectors * task.kv.num_kv_heads * 4 >= int64_t{task.num_sms} * 3;
}

// Maximum number of units of `vectors` vectors in a batch: each sequence has at most one that is
// not full. The host lists them (PlanLayout); blocks without a unit exit at once.
inline constexpr int NumAttendUnits(int rows, int batch, int heads_per_kv_head, int vectors) {
  return static_cast<int>(int64_t{rows} * heads_per_kv_head / vectors) + batch;
}
// Number of splits in the step of AttendTask::first_split.
inline constexpr int NumSplitsOfStep(const AttendTask& task) {
  const int left = task.num_splits - task.first_split;
  return task.part_splits < left ? task.part_splits : left;
}
// Sequences next to a prompt have less than a prompt's block, however many rows the batch has.
inline constexpr LaunchShape AttendLaunchShape(AttendSize size, const AttendTask& task) {
  const int batch = task.rows.batch;
  const int units = NumAttendUnits(task.rows.num_rows, batch, task.num_heads / task.kv.num_kv_heads,
                                   size.vectors);
  const int beside = batch * CeilDiv(kPromptVectors - 1, size.vectors);
  return {.x = task.decode_rows > 0 && beside < units ? beside : units,
          .y = task.kv.num_kv_heads,
          .z = task.parts == nullptr ? 1 : NumSplitsOfStep(task),
          .shared_bytes = AttendSharedOf(size).num_words * 4};
}
// Maximum number of rows of such a sequence, for AttendTask::decode_rows.
inline constexpr int DecodeRowsBesidePrompts(const AttendTask& task) {
  if (!HasPrompts(task) || task.rows.batch == 1) return 0;
  return CeilDiv(kPromptVectors - 1, task.num_heads / task.kv.num_kv_heads);
}
inline constexpr LaunchShape PromptAttendShape(int head_dim, const AttendTask& task) {
  return {.x = NumAttendUnits(task.rows.num_rows, task.rows.batch,
                              task.num_heads / task.kv.num_kv_heads, kPromptVectors),
          .y = task.kv.num_kv_heads,
          .z = 1,
          .shared_bytes = PromptSharedOf(head_dim).num_words * 4};
}
// The plan of a pass's rows (Backend::PlanRows), which is read by 16 bytes: places
// [rows][kPlaceIntegers], then the units of attention for few rows and those for prompts,
// [units][kUnitIntegers]. A place is a row's sequence and the number of rows from it to the end of
// its sequence, itself included. A unit is a sequence, its first row in the pass, its number of
// rows, and the unit's first vector. The sequence is -1 for padding and for blocks without a unit.
inline constexpr int kPlaceIntegers = 2;
inline constexpr int kUnitIntegers = 4;
struct PlanLayout {
  int num_few = 0;
  int num_prompts = 0;
  int64_t few = 0;  // offset in integers
  int64_t prompts = 0;
  int64_t num_integers = 0;
};
// Depends on the same members of the task as HasPrompts, and on decode_rows.
inline constexpr PlanLayout PlanLayoutOf(const AttendTask& task) {
  PlanLayout at{};
  const int64_t rows = task.rows.num_rows;
  at.few = (rows * kPlaceIntegers + kUnitIntegers - 1) / kUnitIntegers * kUnitIntegers;
  if (rows > 0 && task.kv.num_kv_heads > 0) {
    const bool has_prompts = HasPrompts(task);
    if (has_prompts) at.num_prompts = PromptAttendShape(task.kv.head_dim, task).x;
    if (!has_prompts || task.decode_rows > 0) {
      at.num_few = AttendLaunchShape(kAttendSizes[AttendSizeOf(task)], task).x;
    }
  }
  at.prompts = at.few + int64_t{at.num_few} * kUnitIntegers;
  at.num_integers = at.prompts + int64_t{at.num_prompts} * kUnitIntegers;
  return at;
}
// Number of rows in AttendTask::parts.
inline constexpr int NumPartRows(const AttendTask& task) {
  return task.decode_rows == 0 ? task.rows.num_rows : task.rows.batch * task.decode_rows;
}
// One block for each row and head merges the results of the splits.
inline constexpr int kMergeThreads = 128;
inline constexpr LaunchShape MergeSplitsShape(const AttendTask& task) {
  return {.x = NumPartRows(task), .y = task.num_heads, .z = 1, .shared_bytes = 0};
}
// The splits of a step have blocks of their own. Their results take at most kSplitPartsBytes.
inline constexpr int kMaxSplits = 1024;
inline constexpr int64_t kSplitPartsBytes = int64_t{64} << 20;
// Slots of AttendTask::parts for a row and head.
inline constexpr int NumPartSlots(const AttendTask& task) {
  return task.part_splits + (task.part_splits < task.num_splits ? 2 : 0);
}
inline constexpr int64_t SplitPartsBytes(const AttendTask& task, int slots) {
  return int64_t{4} * NumPartRows(task) * task.num_heads * slots * (task.kv.head_dim + 2);
}
// Returns AttendTask::part_splits so that parts take at most `bytes`, with steps of about the same
// size; 0 if a block should process all splits: there is one split, a prompt alone has enough
// blocks, or not all parts fit and one block for each unit fills the device several times.
inline constexpr int kFullDevices = 8;
inline constexpr int PartSplitsFor(const AttendTask& task, int64_t bytes) {
  if (task.num_splits <= 1 || (HasPrompts(task) && task.decode_rows == 0)) return 0;
  const int64_t fitting = bytes / SplitPartsBytes(task, 1);
  if (task.num_splits <= fitting && task.num_splits <= kMaxSplits) return task.num_splits;
  const int64_t units = task.decode_rows > 0
                            ? task.rows.batch
                            : AttendLaunchShape(kAttendSizes[AttendSizeOf(task)], task).x;
  if (fitting <= 2 || units * task.kv.num_kv_heads >= int64_t{task.num_sms} * kFullDevices)
    return 0;
  const int most = fitting - 2 < kMaxSplits ? static_cast<int>(fitting - 2) : kMaxSplits;
  return CeilDiv(task.num_splits, CeilDiv(task.num_splits, most));
}

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_LAUNCH_SHAPES_H_
