// The kernels of one instruction set, as plain functions on plain structs. Each instruction set is
// a translation unit with its own compiler flags, which therefore must not share inline code with
// other translation units.
#ifndef TANDEM_KERNELS_CPU_CPU_KERNELS_H_
#define TANDEM_KERNELS_CPU_CPU_KERNELS_H_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/matrix.h"
#include "kernels/paged_kv.h"

namespace tandem {

// ---- Packed weights ----
// A packed weight is a sequence of panels of 64 outputs, padded with zeros. A panel is a sequence
// of steps in increasing input. A step holds one f32 input, or a pair of 16-bit inputs, of each of
// the 64 outputs. So a product reads one stream, and its lanes run over outputs.
inline constexpr int kPanelOutputs = 64;
inline constexpr int kStepBytes = 256;
// Steps in a block of a panel. Products of several groups of rows go through a panel in blocks. A
// block stays in the L1 cache (16 KiB of 32) while all groups are multiplied with it.
inline constexpr int kFloatBlockSteps = 64;
// The number of rows whose sums (256 bytes for each row and panel) fit the L2 cache together with
// their activations.
inline constexpr int kMaxTileRows = 512;

// How a product reads its weights and activations.
enum class ProductFormat {
  kF32,      // f32 weights, f32 activations
  kF16,      // f16 weights, f32 activations
  kBF16,     // bf16 weights, f32 activations
  kBF16Dot,  // bf16 weights and activations
  kBlocks,   // from here on: block formats in the order of DType, activations in ActivationGroups
};
inline constexpr int kNumBlockFormats =
    static_cast<int>(DType::kIq4Xs) - static_cast<int>(DType::kQ8_0) + 1;
inline constexpr int kNumProductFormats =
    static_cast<int>(ProductFormat::kBlocks) + kNumBlockFormats;
inline constexpr ProductFormat BlockProductFormat(DType dtype) {
  return static_cast<ProductFormat>(static_cast<int>(ProductFormat::kBlocks) +
                                    static_cast<int>(dtype) - static_cast<int>(DType::kQ8_0));
}

// Calls visit.template operator()<dtype>() for every block format.
template <typename Visit, int... kOffsets>
constexpr void ForEachBlockFormat(const Visit& visit,
                                  std::integer_sequence<int, kOffsets...> /*offsets*/) {
  (visit.template operator()<static_cast<DType>(static_cast<int>(DType::kQ8_0) + kOffsets)>(), ...);
}
template <typename Visit>
constexpr void ForEachBlockFormat(const Visit& visit) {
  ForEachBlockFormat(visit, std::make_integer_sequence<int, kNumBlockFormats>());
}

struct ProductTask {
  const std::byte* panels = nullptr;
  int num_steps = 0;  // in a panel; for block formats, the groups in a panel
  size_t panel_bytes = 0;
  const float* bias = nullptr;  // in the order of the panels, with their padding; or null
  // From pack_activations: blocks of inputs, each [num_rows, inputs of a block], the last padded.
  const void* activations = nullptr;
  int num_rows = 0;
  // If IsGated(end), panels 2u and 2u + 1 are the gate and up of outputs [64 u, 64 u + 64).
  Epilogue end = Epilogue::kStore;
  float* out = nullptr;  // [num_rows, out_cols]
  int64_t out_stride = 0;
  int out_cols = 0;
};

// [begin, end).
struct IndexRange {
  int begin = 0;
  int end = 0;
};

// ---- Attention ----
// Softmax runs over tiles of this many positions. Tiles are aligned to position 0 for every page
// size, so a row's bits do not depend on the layout of the cache.
inline constexpr int kAttendTile = 32;
// Positions in a chunk, which is also aligned to position 0. Each chunk has its own softmax, and a
// row's chunks are merged in increasing order. So threads can share a long context without changing
// a bit.
inline constexpr int kAttendChunk = 256;

struct AttendTask {
  const float* queries = nullptr;  // [num_rows, num_heads * head_dim]
  int64_t query_stride = 0;
  float* out = nullptr;
  int64_t out_stride = 0;
  PagedKvView kv;
  int heads_per_kv_head = 0;
  AttentionForm form;
};

// A unit of work: rows of one sequence and the query heads of one key/value head, over some chunks
// of the sequence's cache.
struct AttendUnit {
  int sequence = 0;
  int kv_head = 0;
  IndexRange rows;
  int first_position = 0;  // of rows.begin
  IndexRange chunks;       // all chunks that its rows see, or some of them
  // Where to leave the states of the chunks, AttendStateFloats each, for merge_chunks. Null: merge
  // them and write the result to `out`.
  float* states = nullptr;

  int num_vectors(int heads_per_kv_head) const {
    return (rows.end - rows.begin) * heads_per_kv_head;
  }
};

inline constexpr size_t AttendPaddedDim(int head_dim) {
  return (static_cast<size_t>(head_dim) + 15) / 16 * 16;
}
// The state of one chunk's softmax. Each vector has sums: of the weighted values, and of the
// exponentials in 16 lanes. After all sums, [num_vectors, AttendSumStride], follow the reference
// scores [num_vectors], which were subtracted before the exponential.
inline constexpr size_t AttendSumStride(int head_dim) { return AttendPaddedDim(head_dim) + 16; }
inline constexpr size_t AttendStateFloats(int num_vectors, int head_dim) {
  const size_t vectors = static_cast<size_t>(num_vectors);
  return vectors * AttendSumStride(head_dim) + (vectors + 15) / 16 * 16;
}
// Cache lines (16 words) of a tile: at most kAttendTile * 2 * head_dim words of keys and values,
// and the scales.
inline constexpr size_t AttendTileLines(int head_dim) {
  return static_cast<size_t>(head_dim + 1) * kAttendTile / 8;
}
// Floats of scratch memory for a unit of `num_vectors` (rows times heads): two states; a tile's
// keys and values as f32, a row of zeros, scales; scores and queries; addresses of cache lines.
inline constexpr size_t AttendScratchFloats(int num_vectors, int head_dim) {
  const size_t padded_dim = AttendPaddedDim(head_dim);
  return 2 * AttendStateFloats(num_vectors, head_dim) + padded_dim * (2 * kAttendTile + 1) +
         2 * kAttendTile + static_cast<size_t>(num_vectors) * (kAttendTile + padded_dim) +
         2 * AttendTileLines(head_dim);
}

// ---- Sampling ----
// A race between the entries of a row (model/sampling.h). The bits of entry v are word v % 4 of the
// Philox block whose counter has first_lane + v / 4 as word 2, and its u = (bits + 1/2) / 2^32,
// rounded to f32 twice.
struct RaceTask {
  const float* weights = nullptr;  // [size], not negative
  int size = 0;
  uint32_t counter[4] = {};  // word 2 is ignored
  uint32_t first_lane = 0;
  uint64_t key = 0;
  float bound = 0.0f;
};

struct CpuKernels {
  const char* name = nullptr;

  // Writes words [0, words) of each of 64 outputs as `words` steps.   out: [words, 64]
  void (*transpose_outputs)(const std::byte* const* outputs, int words, std::byte* out) = nullptr;
  // Searches for the scale whose products with integers from `low` to `high` come closest to x.
  //   count: 16 or 32
  float (*search_scale)(const float* x, int count, float low, float high) = nullptr;
  // Searches for the scale and the minimum for which scale * code + minimum, with codes from 0 to
  // `most`, comes closest to x. The minimum is at most 0 if `minimum_is_negative`.
  void (*search_line)(const float* x, int count, float most, bool minimum_is_negative, float* scale,
                      float* minimum) = nullptr;
  // Multiplies rows [rows) by panels (if IsGated(task.end), pairs of panels) [units). Null for
  // formats that the instruction set does not support.
  //   sums: scratch, [2, rows, 64], 64-byte aligned
  void (*multiply[kNumProductFormats])(const ProductTask& task, IndexRange units, IndexRange rows,
                                       float* sums) = {};
  // Converts rows [rows) of x, [num_rows, inputs], to the layout of ProductTask::activations.
  void (*pack_activations[kNumProductFormats])(const float* x, int64_t stride, int inputs,
                                               int num_rows, IndexRange rows, void* packed) = {};

  // out = x / sqrt(mean(x^2) + epsilon) * weight; out may be x.
  void (*rms_norm)(const float* x, const float* weight, int size, float epsilon,
                   float* out) = nullptr;
  // out = x - mean(x); out may be x.
  void (*subtract_mean)(const float* x, int size, float* out) = nullptr;
  // x = scale * x if soft_cap is 0, else soft_cap * tanh(scale * x / soft_cap).
  void (*scale_and_cap)(float scale, float soft_cap, int size, float* x) = nullptr;
  // sum += scale * x.
  void (*add_scaled)(const float* x, float scale, int size, float* sum) = nullptr;
  // Rotates a head in place.   angles: cosines [head_dim / 2], then sines [head_dim / 2]
  void (*rotate)(const float* angles, int head_dim, float* head) = nullptr;
  // Computes the attention of a unit.   scratch: [AttendScratchFloats], 64-byte aligned
  void (*attend[kNumKvDTypes])(const AttendTask& task, const AttendUnit& unit, float* scratch) = {};
  // The same with queries and softmax weights rounded: to bf16 for a bf16 cache, to integers of 16
  // bits for an int8 cache. Null for dtypes that the instruction set does not support.
  void (*attend_rounded[kNumKvDTypes])(const AttendTask& task, const AttendUnit& unit,
                                       float* scratch) = {};
  // Merges the states of all chunks of a unit, which are in unit.states, and writes the result to
  // `out`.   scratch: as for attend
  void (*merge_chunks)(const AttendTask& task, const AttendUnit& unit, float* scratch) = nullptr;
  // The largest entry of x, or a NaN if x contains one; -infinity if size is 0.
  float (*largest_or_nan)(const float* x, int size) = nullptr;
  // row = exp(row * scale - largest), divided by its sum. REQUIRES: largest, the maximum of
  // row * scale, is finite.
  void (*softmax)(float* row, int size, float scale, float largest) = nullptr;
  // Finds the entries with u <= weight * bound, in increasing order. Returns their number.
  //   ids, bits: [size], the indices of the entries found, and their random bits
  int (*race_candidates)(const RaceTask& task, int32_t* ids, uint32_t* bits) = nullptr;
  // out[i] = exp(x[i]), accurate to 2 units in the last place.
  void (*exponential)(const float* x, int size, float* out) = nullptr;
};

// Constant-initialised, one translation unit each.
extern const CpuKernels kPortableKernels;
extern const CpuKernels kAvx2Kernels;
extern const CpuKernels kAvx2VnniKernels;
extern const CpuKernels kAvx512Kernels;
extern const CpuKernels kAvx512VnniKernels;
extern const CpuKernels kAvx512Bf16Kernels;
// Returns `kernels`, but with AMX for products of 16 and more rows with block formats.
CpuKernels WithAmx(CpuKernels kernels);

}  // namespace tandem

#endif  // TANDEM_KERNELS_CPU_CPU_KERNELS_H_
