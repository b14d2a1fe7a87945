// What one instruction set's kernels offer: plain functions over plain structs, so that their
// translation units, compiled with flags of their own, share no inline code with the others.
#ifndef TANDEM_KERNELS_CPU_CPU_KERNELS_H_
#define TANDEM_KERNELS_CPU_CPU_KERNELS_H_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "kernels/matrix.h"
#include "kernels/paged_kv.h"

namespace tandem {

// ---- Packed weights ----
// A packed weight is a sequence of panels of 64 outputs, zeros in the place of outputs and inputs
// that do not exist. A panel is a sequence of steps of increasing input, each 64 outputs of one f32
// or of a pair of 16-bit inputs. So a product reads one stream, and its lanes run over outputs.
inline constexpr int kPanelOutputs = 64;
inline constexpr int kStepBytes = 256;
// Products of several groups of rows take a panel in blocks that stay in the L1 cache
// (16 KiB of 32) while the groups take turns.
inline constexpr int kFloatBlockSteps = 64;
// Rows whose sums (256 bytes a row and panel) fit the L2 cache together with activations.
inline constexpr int kMaxTileRows = 512;

// How a product reads its weights and activations.
enum class ProductFormat {
  kF32,      // f32 weights, f32 activations
  kF16,      // f16 weights, f32 activations
  kBF16,     // bf16 weights, f32 activations
  kBF16Dot,  // bf16 weights and activations
  kBlocks,   // from here on block formats in the order of DType, activations in ActivationGroups
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
  int num_steps = 0;  // of a panel; of blocks, its groups
  size_t panel_bytes = 0;
  const float* bias = nullptr;  // in the panels' order with their padding, or none
  // Blocks of inputs, each [num_rows, inputs of a block], the last padded: see pack_activations.
  const void* activations = nullptr;
  int num_rows = 0;
  // Where it IsGated panels 2u and 2u + 1 are gate and up of outputs [64 u, ...).
  Epilogue end = Epilogue::kStore;
  float* out = nullptr;  // [num_rows, out_cols]
  int64_t out_stride = 0;
  int out_cols = 0;
};

// Half-open.
struct IndexRange {
  int begin = 0;
  int end = 0;
};

// ---- Attention ----
// Softmax runs over tiles of this many positions, aligned to position 0 whatever the page size, so
// that a row's bits do not depend on how the cache is laid out.
inline constexpr int kAttendTile = 32;
// Chunks of tiles, aligned likewise, that have a softmax of their own; a row's chunks are merged in
// increasing order. So threads can share a long context out without changing a bit.
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

// Rows of one sequence and the query heads of one key/value head, over some chunks of its cache.
struct AttendUnit {
  int sequence = 0;
  int kv_head = 0;
  IndexRange rows;
  int first_position = 0;  // of rows.begin
  IndexRange chunks;       // all that a row sees, or some of them
  // Where the chunks are left, each AttendStateFloats, for merge_chunks; null: merged into the out.
  float* states = nullptr;

  int num_vectors(int heads_per_kv_head) const {
    return (rows.end - rows.begin) * heads_per_kv_head;
  }
};

inline constexpr size_t AttendPaddedDim(int head_dim) {
  return (static_cast<size_t>(head_dim) + 15) / 16 * 16;
}
// The softmax of one chunk: a vector's sums are those of weighted values and 16 lanes of
// exponentials; behind all sums, [num_vectors, AttendSumStride], stand the scores that they are
// above.
inline constexpr size_t AttendSumStride(int head_dim) { return AttendPaddedDim(head_dim) + 16; }
inline constexpr size_t AttendStateFloats(int num_vectors, int head_dim) {
  const size_t vectors = static_cast<size_t>(num_vectors);
  return vectors * AttendSumStride(head_dim) + (vectors + 15) / 16 * 16;
}
// Of 16 words of keys, and of values: at most kAttendTile * 2 * head_dim words of a tile and the
// scales.
inline constexpr size_t AttendTileLines(int head_dim) {
  return static_cast<size_t>(head_dim + 1) * kAttendTile / 8;
}
// Floats of scratch that a unit of `num_vectors` (rows times heads) wants: two states; keys and
// values of a tile as f32, a row of zeros, scales; scores and queries; addresses of cache lines.
inline constexpr size_t AttendScratchFloats(int num_vectors, int head_dim) {
  const size_t padded_dim = AttendPaddedDim(head_dim);
  return 2 * AttendStateFloats(num_vectors, head_dim) + padded_dim * (2 * kAttendTile + 1) +
         2 * kAttendTile + static_cast<size_t>(num_vectors) * (kAttendTile + padded_dim) +
         2 * AttendTileLines(head_dim);
}

// ---- Sampling ----
// A race for the entries of a row: entry v has the Philox word v % 4 of the block whose counter has
// first_lane + v / 4 in word 2, and u = (word + 1/2) / 2^32, rounded to f32 twice.
struct RaceTask {
  const float* weights = nullptr;  // [size], not negative
  int size = 0;
  uint32_t counter[4] = {};  // word 2 is not looked at
  uint32_t first_lane = 0;
  uint64_t key = 0;
  float bound = 0.0f;
};

struct CpuKernels {
  const char* name = nullptr;

  // Writes words [0, words) of each of 64 outputs to as many steps.   out: [words, 64]
  void (*transpose_outputs)(const std::byte* const* outputs, int words, std::byte* out) = nullptr;
  // The scale with which integers from `low` to `high` come closest to x.   count: 16 or 32
  float (*search_scale)(const float* x, int count, float low, float high) = nullptr;
  // The scale and the minimum with which codes from 0 to `most` do; the minimum not above 0 if so
  // wanted.
  void (*search_line)(const float* x, int count, float most, bool minimum_is_negative, float* scale,
                      float* minimum) = nullptr;
  // Multiplies rows [rows) by the panels (pairs of panels where it IsGated) [units).
  //   sums: scratch, [2, rows, 64], 64-byte aligned. Null where the format is not supported.
  void (*multiply[kNumProductFormats])(const ProductTask& task, IndexRange units, IndexRange rows,
                                       float* sums) = {};
  // Lays out rows [rows) of x: [num_rows, inputs] as ProductTask::activations.
  void (*pack_activations[kNumProductFormats])(const float* x, int64_t stride, int inputs,
                                               int num_rows, IndexRange rows, void* packed) = {};

  // out = x / sqrt(mean(x^2) + epsilon) * weight; out may be x.
  void (*rms_norm)(const float* x, const float* weight, int size, float epsilon,
                   float* out) = nullptr;
  // out = x - mean(x); out may be x.
  void (*subtract_mean)(const float* x, int size, float* out) = nullptr;
  // x = scale * x, or cap * tanh(scale * x / cap) if there is a cap.
  void (*scale_and_cap)(float scale, float soft_cap, int size, float* x) = nullptr;
  // sum += scale * x.
  void (*add_scaled)(const float* x, float scale, int size, float* sum) = nullptr;
  // Rotates a head in place by angles: cosines [head_dim / 2], then sines.
  void (*rotate)(const float* angles, int head_dim, float* head) = nullptr;
  // Attention of a unit.   scratch: AttendScratchFloats, 64-byte aligned
  void (*attend[kNumKvDTypes])(const AttendTask& task, const AttendUnit& unit, float* scratch) = {};
  // The same with queries and weights rounded, to bf16 for a cache of bf16, to integers of 16
  // bits for one of int8. Null where not supported.
  void (*attend_rounded[kNumKvDTypes])(const AttendTask& task, const AttendUnit& unit,
                                       float* scratch) = {};
  // Merges a unit's chunks, all of them in unit.states, into the out.   scratch: likewise
  void (*merge_chunks)(const AttendTask& task, const AttendUnit& unit, float* scratch) = nullptr;
  // The largest of x, or a NaN if there is one; -infinity for none.
  float (*largest_or_nan)(const float* x, int size) = nullptr;
  // row = exp(row * scale - largest), divided by its sum; `largest` = max(row * scale), finite.
  void (*softmax)(float* row, int size, float scale, float largest) = nullptr;
  // Finds, in increasing order, the entries with u <= weight * bound. Returns how many.
  //   ids, bits: [size], the entries and their words
  int (*race_candidates)(const RaceTask& task, int32_t* ids, uint32_t* bits) = nullptr;
  // out[i] = exp(x[i]) to 2 units in the last place.
  void (*exponential)(const float* x, int size, float* out) = nullptr;
};

// Constant-initialised, one translation unit each.
extern const CpuKernels kPortableKernels;
extern const CpuKernels kAvx2Kernels;
extern const CpuKernels kAvx2VnniKernels;
extern const CpuKernels kAvx512Kernels;
extern const CpuKernels kAvx512VnniKernels;
extern const CpuKernels kAvx512Bf16Kernels;
// AMX multiplies the integers of block formats where there are 16 rows and more.
CpuKernels WithAmx(CpuKernels kernels);

}  // namespace tandem

#endif  // TANDEM_KERNELS_CPU_CPU_KERNELS_H_
