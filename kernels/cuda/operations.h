// The operations that the host enqueues on a device. Their tasks consist of plain numbers and
// pointers to device memory. The contracts are in kernels/backend.h. Both g++ and nvcc compile this
// header, so it includes only plain views.
#ifndef TANDEM_KERNELS_CUDA_OPERATIONS_H_
#define TANDEM_KERNELS_CUDA_OPERATIONS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/product_layout.h"
#include "kernels/matrix.h"
#include "kernels/paged_kv.h"
#include "kernels/row_tasks.h"

namespace tandem::cuda {

// The toolkit's error code of a call: 0 for success. ErrorText (device.h) describes it.
using Error = int;
inline constexpr Error kNoError = 0;
// Not one of the toolkit's: a kernel has more blocks than devices accept.
inline constexpr Error kGridTooLarge = -1;

// A queue of work that runs in order.
using Stream = void*;

// Alignment of a block's shared memory, in bytes: the rows of wgmma require it.
inline constexpr int kSharedAlignment = 1024;

// The grid of a kernel, and the bytes of shared memory and the threads of a block.
struct LaunchShape {
  int x = 1;
  int y = 1;
  int z = 1;
  int shared_bytes = 0;
  int threads = 0;  // 0: the kernel's kThreads, which are the most
  int cluster = 1;  // adjacent blocks of x that run at the same time; x is a multiple of it

  static constexpr int kMaxYz = 65535;  // of every device; x may be any int

  constexpr int64_t num_blocks() const { return int64_t{x} * y * z; }
  constexpr bool fits() const { return y <= kMaxYz && z <= kMaxYz; }
};

template <typename Kernel>
constexpr int NumThreads(const LaunchShape& shape) {
  return shape.threads > 0 ? shape.threads : Kernel::kThreads;
}

// Where an operation also writes its result as the product that reads it next does
// (product_layout.h). The result's number of columns is a multiple of 32. If its own view has no
// data, it is written only here.
struct NextRows {
  void* image = nullptr;        // RowsImageBytes; null: there is no such product
  const float* norm = nullptr;  // [cols]: the weights of the product's norm, or null
  float* squares = nullptr;     // [rows][NumSquares(cols)], if there is a norm
};

struct EmbedTask {
  const int32_t* ids = nullptr;  // [out.rows]; rows with ids outside the table are left unchanged
  ConstMatrixView table;         // block formats are in tiles (product_layout.h)
  MatrixView out;
  NextRows next{};
};
Error Launch(const EmbedTask& task, Stream stream);

struct GatherRowsTask {
  ConstMatrixView x;
  const int32_t* indices = nullptr;  // [out.rows]; rows with indices outside x are left unchanged
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
  RowState* states = nullptr;     // [num_rows]
  int num_rows = 0;
  int variant = 0;  // variants.h
};
Error Launch(const DistributionsTask& task, Stream stream);

struct SlotsTask {
  const SlotTask* slots = nullptr;  // all slots
  SlotAnswer* answers = nullptr;    // of all slots
  int begin = 0;
  int num_slots = 0;  // from `begin` on
};
Error Launch(const SlotsTask& task, Stream stream);

struct TakeDrawnTask {
  const SlotAnswer* answers = nullptr;
  const int32_t* sources = nullptr;  // [count]: indices in `answers`; negative: no change
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
  float soft_cap = 0.0f;  // 0: no cap
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
  const float* query_norm = nullptr;  // [head_dim], or null
  const float* key_norm = nullptr;    // [head_dim], or null
  float epsilon = 0.0f;
  RaggedRows rows;
  PagedKvView kv;
  int num_heads = 0;
};
Error Launch(const RotateAndCacheTask& task, Stream stream);

// A norm of rows.
struct NormTask {
  const float* weight = nullptr;  // [inputs]; null: no norm
  float epsilon = 0.0f;
};

// Rounds rows to an image of bf16, or quantises them for weights of block formats
// (product_layout.h). With a norm, the rows are multiplied with its weights, and `squares` gets the
// sums of squares from which products compute the factor of each row's sums.
struct PackRowsTask {
  ConstMatrixView x;
  void* out = nullptr;  // RowsImageBytes(x.rows, x.cols), or PackedWholeRowsBytes
  bool quantizes = false;
  NormTask norm;
  float* squares = nullptr;  // [x.rows][NumSquares(x.cols)]
};
Error Launch(const PackRowsTask& task, Stream stream);

// A product of rows rounded to bf16 with a weight of bf16, or of quantised rows with a weight of a
// block format (product_layout.h).
struct TileProductTask {
  ConstMatrixView x;               // only its size is used
  const void* rows = nullptr;      // packed x
  NormTask norm;                   // whose weights the packed rows were multiplied with
  const float* squares = nullptr;  // of x, if there is a norm
  const void* weight = nullptr;    // packed
  DType dtype = DType::kBF16;      // of the weight
  const float* bias = nullptr;     // [num_tiles * 16] in the weight's order, or null
  int num_tiles = 0;               // of 16 outputs
  int num_sms = 1;                 // of the device
  int variant = 0;                 // of few rows (variants.h)
  int wide_variant = 0;            // of many rows by warpgroups
  Epilogue end = Epilogue::kStore;
  MatrixView out;
  NextRows next{};  // with weights of bf16 only
};
Error Launch(const TileProductTask& task, Stream stream);
// Sets `has` to whether the device has LaunchWarpgroupProduct, which is for weights of bf16.
Error HasWarpgroupProducts(Stream stream, bool* has);
// Called by Launch: for few rows and weights of bf16, for many rows on a device that has it, and
// for weights of block formats.
Error LaunchFewRowsBf16(const TileProductTask& task, Stream stream);
Error LaunchWarpgroupProduct(const TileProductTask& task, Stream stream);
Error LaunchFewRowsBlocks(const TileProductTask& task, Stream stream);
Error LaunchManyRowsBlocks(const TileProductTask& task, Stream stream);

// Writes consecutive outputs of a part of a weight of bf16 to their places in the packed weight.
// Writes zeros for the inputs from `inputs` to the end of their step.
struct PackOutputsTask {
  const void* rows = nullptr;  // [num_rows, inputs rounded up to be even]; null: zeros
  int first = 0;               // the first row's output in its part
  int num_rows = 0;
  int inputs = 0;
  // Not null: the rows are f16, which is rounded to bf16, and this counts the numbers that change.
  uint32_t* num_rounded = nullptr;
  PartPlaces places;
  void* packed = nullptr;
};
Error Launch(const PackOutputsTask& task, Stream stream);

// Unpacks a weight of bf16 to plain rows, [num_tiles * 16, num_steps * 32].
struct UnpackTilesTask {
  const void* packed = nullptr;
  int num_tiles = 0;
  int num_steps = 0;
  void* out = nullptr;
};
Error Launch(const UnpackTilesTask& task, Stream stream);

// Copies rows of an image to plain rows, [plain_rows, num_steps * 32].
struct PlainRowsTask {
  const void* image = nullptr;
  int image_rows = 0;
  int first_row = 0;   // of the image, a multiple of kTileRows
  int num_rows = 0;    // of the image; zeros follow
  int plain_rows = 0;  // a multiple of kTileRows
  int num_steps = 0;
  void* out = nullptr;
};
Error Launch(const PlainRowsTask& task, Stream stream);

// The epilogue of some rows of a product whose sums have been computed.
struct EndSumsTask {
  TileProductTask product;
  int first_row = 0;
  ConstMatrixView sums;  // [rows, product.num_tiles * 16]
};
Error Launch(const EndSumsTask& task, Stream stream);

// Counts the words in which two arrays differ. Each warp stores a count.
struct CountDifferencesTask {
  const void* a = nullptr;
  const void* b = nullptr;
  int64_t num_words = 0;
  uint32_t* counts = nullptr;  // [NumDifferenceCounts] (launch_shapes.h)
};
Error Launch(const CountDifferencesTask& task, Stream stream);

// A product in f32 with a weight of f32 or f16 whose rows are adjacent.
struct FloatProductTask {
  ConstMatrixView x;
  ConstMatrixView weight;       // [outputs, inputs]; if IsGated, the rows of the gate, then of up
  const float* bias = nullptr;  // [weight.rows], or null
  Epilogue end = Epilogue::kStore;
  MatrixView out;
};
Error Launch(const FloatProductTask& task, Stream stream);

// Attention, in splits of the context whose results are merged in order (launch_shapes.h).
struct AttendTask {
  ConstMatrixView q;
  RaggedRows rows;
  PagedKvView kv;
  AttentionForm form;  // its window is never 0 here: INT_MAX stands for an unlimited window
  int num_heads = 0;
  MatrixView out;
  NextRows next{};  // without a norm
  // Results of splits, [rows, num_heads, NumPartSlots, head_dim + 2]; each split then has blocks of
  // its own. If null, a block processes all splits.
  float* parts = nullptr;
  int num_splits = 0;
  // The splits whose results `parts` holds at a time. If these are not all, Launch proceeds in
  // steps of part_splits, and two more slots hold the sums of the steps so far, in turn.
  int part_splits = 0;
  int first_split = 0;  // of the step; set by Launch
  int num_sms = 1;      // of the device
  // If some sequences are prompts and others are not: the maximum number of rows of each of the
  // others. `parts` is then [batch, decode_rows, ...]. Otherwise 0.
  int decode_rows = 0;
  const int32_t* units = nullptr;  // set by Launch: a part of rows.plan (PlanLayout)
};
Error Launch(const AttendTask& task, Stream stream);
// Called by Launch: for caches of f32 and int8, for caches of bf16, and for prompts.
Error LaunchPlainAttention(const AttendTask& task, Stream stream);
Error LaunchTensorAttention(const AttendTask& task, Stream stream);
Error LaunchPromptAttention(const AttendTask& task, Stream stream);

// Measures the peak read bandwidth of the device, as kernels/peak.h measures the peak of a CPU. A
// block reads a stretch of 64 KB, 16 bytes per thread at a time, with all 16 loads of a thread in
// flight at once.
inline constexpr int kReadThreads = 256;
inline constexpr int kReadsOfThread = 16;
inline constexpr int kReadBlockWords4 = kReadThreads * kReadsOfThread;
inline constexpr int kReadSumsOfBlock = kReadThreads / 32;

inline constexpr LaunchShape ReadShape(int64_t num_words4) {
  return {.x = static_cast<int>((num_words4 + kReadBlockWords4 - 1) / kReadBlockWords4)};
}

// Reads 16 bytes `num_words4` times. Each warp stores the exclusive or of its words.
struct ReadTask {
  const void* data = nullptr;
  int64_t num_words4 = 0;
  uint32_t* sums = nullptr;  // [blocks, kReadSumsOfBlock]
};
Error Launch(const ReadTask& task, Stream stream);

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_OPERATIONS_H_
