// The device's operations as the host enqueues them: what each takes, in plain numbers and pointers
// to the device's memory. Contracts stand in kernels/backend.h. This header is read by g++ and
// nvcc, so it includes plain views only.
#ifndef TANDEM_KERNELS_CUDA_OPERATIONS_H_
#define TANDEM_KERNELS_CUDA_OPERATIONS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/product_layout.h"
#include "kernels/matrix.h"
#include "kernels/paged_kv.h"
#include "kernels/row_tasks.h"

namespace tandem::cuda {

// What the toolkit says of a call: 0 for none, else a number that ErrorText (device.h) explains.
using Error = int;
inline constexpr Error kNoError = 0;

// Work that runs in order.
using Stream = void*;

// Bytes at which a block's shared memory is aligned: storage of CUB's collectives asks for 32.
inline constexpr int kSharedAlignment = 32;

// Blocks of a kernel, and the bytes of shared memory each has.
struct LaunchShape {
  int x = 1;
  int y = 1;
  int z = 1;
  int shared_bytes = 0;

  int64_t num_blocks() const { return int64_t{x} * y * z; }
};

struct EmbedTask {
  const int32_t* ids = nullptr;  // [out.rows]; rows of ids outside the table are left as they are
  ConstMatrixView table;         // of blocks: in tiles (product_layout.h)
  MatrixView out;
};
Error Launch(const EmbedTask& task, Stream stream);

struct GatherRowsTask {
  ConstMatrixView x;
  const int32_t* indices = nullptr;  // [out.rows]; likewise
  MatrixView out;
};
Error Launch(const GatherRowsTask& task, Stream stream);

struct ArgMaxTask {
  ConstMatrixView x;
  int32_t* largest = nullptr;  // [x.rows]
};
Error Launch(const ArgMaxTask& task, Stream stream);

struct DistributionsTask {
  const RowTask* rows = nullptr;  // [num_rows]
  RowState* states = nullptr;     // likewise
  int num_rows = 0;
};
Error Launch(const DistributionsTask& task, Stream stream);

struct SlotsTask {
  const SlotTask* slots = nullptr;  // all of them
  SlotAnswer* answers = nullptr;    // likewise
  int begin = 0;
  int num_slots = 0;  // from there on
};
Error Launch(const SlotsTask& task, Stream stream);

struct TakeDrawnTask {
  const SlotAnswer* answers = nullptr;
  const int32_t* sources = nullptr;  // [count]: of answers, or negative for none
  int32_t* ids = nullptr;            // [count]
  int count = 0;
};
Error Launch(const TakeDrawnTask& task, Stream stream);

struct RmsNormTask {
  ConstMatrixView x;
  const float* weight = nullptr;  // [x.cols]
  float epsilon = 0.0f;
  MatrixView out;
};
Error Launch(const RmsNormTask& task, Stream stream);

struct SubtractMeanTask {
  ConstMatrixView x;
  MatrixView out;
};
Error Launch(const SubtractMeanTask& task, Stream stream);

struct ScaleAndCapTask {
  float scale = 1.0f;
  float soft_cap = 0.0f;  // or none
  MatrixView x;
};
Error Launch(const ScaleAndCapTask& task, Stream stream);

struct AddScaledTask {
  ConstMatrixView x;
  float scale = 1.0f;
  MatrixView sum;
};
Error Launch(const AddScaledTask& task, Stream stream);

struct RotaryAnglesTask {
  RaggedRows rows;
  const int32_t* lengths = nullptr;  // [rows.batch]
  RotaryTables tables;
  MatrixView out;
};
Error Launch(const RotaryAnglesTask& task, Stream stream);

struct RotateAndCacheTask {
  MatrixView qkv;
  ConstMatrixView angles;
  const float* query_norm = nullptr;  // [head_dim], or none
  const float* key_norm = nullptr;    // likewise
  float epsilon = 0.0f;
  RaggedRows rows;
  PagedKvView kv;
  int num_heads = 0;
};
Error Launch(const RotateAndCacheTask& task, Stream stream);

// The weights of a norm, or none.
struct NormTask {
  const float* weight = nullptr;  // [inputs]
  float epsilon = 0.0f;
};

// Rounds rows to bf16, or quantises them for weights of block formats, in the order in which
// products read them (product_layout.h), or rounds them to `plain_rows` plain rows of all steps'
// inputs, zeros outside of x. With a norm they are multiplied with its weights, and `factors` gets
// the factor of each row's sums.
struct PackRowsTask {
  ConstMatrixView x;
  void* out = nullptr;  // PackedRowsBytes(x.rows, x.cols), or PackedWholeRowsBytes
  bool quantizes = false;
  int plain_rows = 0;  // or 0; a multiple of kTileRows
  NormTask norm;
  float* factors = nullptr;  // [x.rows]
};
Error Launch(const PackRowsTask& task, Stream stream);

// A product of rows, rounded to bf16, with a weight of bf16, or of quantised rows
// with a weight of blocks (product_layout.h).
struct TileProductTask {
  ConstMatrixView x;               // read where rows are few: rounded on the way
  const void* rows = nullptr;      // packed; read where they are more than kRowsRoundedOnTheWay
  NormTask norm;                   // of x where it is read
  const float* factors = nullptr;  // of packed rows' sums, or none
  const void* weight = nullptr;    // packed
  DType dtype = DType::kBF16;      // of the weight
  const float* bias = nullptr;     // [num_tiles * 16] in the weight's order, or none
  int num_tiles = 0;               // of 16 outputs
  int num_sms = 1;                 // of the device
  Epilogue end = Epilogue::kStore;
  MatrixView out;
};
Error Launch(const TileProductTask& task, Stream stream);
// Of a weight of blocks; called by Launch.
Error LaunchBlocks(const TileProductTask& task, Stream stream);

// A packed weight of bf16 as plain rows, [num_tiles * 16, num_steps * 32].
struct UnpackTilesTask {
  const void* packed = nullptr;
  int num_tiles = 0;
  int num_steps = 0;
  void* out = nullptr;
};
Error Launch(const UnpackTilesTask& task, Stream stream);

// The end of a product whose sums are there: [product.out.rows, product.num_tiles * 16].
struct EndSumsTask {
  TileProductTask product;
  ConstMatrixView sums;
};
Error Launch(const EndSumsTask& task, Stream stream);

// A product in f32 with a weight of f32 or f16 whose rows lie next to each other.
struct FloatProductTask {
  ConstMatrixView x;
  ConstMatrixView weight;  // [outputs, inputs]; where it IsGated the gate's rows, then the other's
  const float* bias = nullptr;  // [weight.rows], or none
  Epilogue end = Epilogue::kStore;
  MatrixView out;
};
Error Launch(const FloatProductTask& task, Stream stream);

// Attention, in splits of the context whose results are merged in order (launch_shapes.h).
struct AttendTask {
  ConstMatrixView q;
  RaggedRows rows;
  PagedKvView kv;
  AttentionForm form;  // whose window is never 0: INT_MAX stands for all
  int num_heads = 0;
  MatrixView out;
  // Where splits leave their results, [rows, num_heads, num_splits, head_dim + 2]: then each has
  // blocks of its own. Without, a block goes over all splits.
  float* parts = nullptr;
  int num_splits = 0;
  int num_sms = 1;  // of the device
  // Where some sequences are prompts and others not: the rows that each of these may have, which
  // `parts` has room for, [batch, rows_beside, ...]. Else 0.
  int rows_beside = 0;
  // Set by Launch: a kernel attends to sequences with so many query vectors of a group.
  int min_vectors = 0;
  int max_vectors = INT32_MAX;
};
Error Launch(const AttendTask& task, Stream stream);

// The most that the device reads in a second, as kernels/peak.h has the most that a CPU computes. A
// block reads a stretch of 64 KB, 16 bytes a thread at a time, all 16 of a thread on their way at
// once.
inline constexpr int kReadThreads = 256;
inline constexpr int kReadsOfThread = 16;
inline constexpr int kReadBlockWords4 = kReadThreads * kReadsOfThread;
inline constexpr int kReadSumsOfBlock = kReadThreads / 32;

inline constexpr LaunchShape ReadShape(int64_t num_words4) {
  return {.x = static_cast<int>((num_words4 + kReadBlockWords4 - 1) / kReadBlockWords4)};
}

// Reads 16 bytes `num_words4` times. Each warp leaves the exclusive or of its words.
struct ReadTask {
  const void* data = nullptr;
  int64_t num_words4 = 0;
  uint32_t* sums = nullptr;  // [blocks, kReadSumsOfBlock]
};
Error Launch(const ReadTask& task, Stream stream);

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_OPERATIONS_H_
