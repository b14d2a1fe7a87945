// Reductions and conversions that several kernels share.
#ifndef TANDEM_KERNELS_CUDA_WARP_MATH_CUH_
#define TANDEM_KERNELS_CUDA_WARP_MATH_CUH_

#include "kernels/cuda/launch_shapes.h"
#include "kernels/cuda/simt.h"

namespace tandem::cuda {

// Returns a number that all lanes have, such as the index of a block, from a register. The compiler
// reads special registers again wherever they are used, in loops too.
TANDEM_DEVICE int KeptInRegister(int number) { return ShuffleFrom(number, 0); }
// The same for a number of each lane.
TANDEM_DEVICE int KeptByLane(int number) { return ShuffleXor(number, 0); }

// Returns the same bits in every lane: a butterfly adds the same pairs in all lanes.
TANDEM_DEVICE float WarpSum(float value) {
  TANDEM_UNROLL
  for (int mask = kWarpSize / 2; mask > 0; mask /= 2) value = value + ShuffleXor(value, mask);
  return value;
}

TANDEM_DEVICE float WarpMax(float value) {
  TANDEM_UNROLL
  for (int mask = kWarpSize / 2; mask > 0; mask /= 2) {
    value = Larger(value, ShuffleXor(value, mask));
  }
  return value;
}

TANDEM_DEVICE float Bf16Low(uint32_t pair) { return BitsToFloat(pair << 16); }
TANDEM_DEVICE float Bf16High(uint32_t pair) { return BitsToFloat(pair & 0xFFFF0000u); }

// Returns element `index` of f32, f16 or bf16 numbers.
TANDEM_DEVICE float LoadAsFloat(const void* data, DType dtype, int64_t index) {
  if (dtype == DType::kF32) return Load(static_cast<const float*>(data) + index);
  const uint32_t bits = Load(static_cast<const uint16_t*>(data) + index);
  return dtype == DType::kF16 ? F16ToFloat(bits) : BitsToFloat(bits << 16);
}

TANDEM_DEVICE const float* RowOf(const ConstMatrixView& x, int64_t row) {
  return static_cast<const float*>(x.data) + row * x.stride;
}
TANDEM_DEVICE float* RowOf(const MatrixView& x, int64_t row) {
  return static_cast<float*>(x.data) + row * x.stride;
}

// Calls use(v, load(v)) for v = begin, begin + stride, ... below `end`, in this order. Issues
// kBatch loads at a time before it uses them, to hide their latency.
template <int kBatch = 8, typename LoadAt, typename Use>
TANDEM_DEVICE void ForEach(int begin, int end, int stride, const LoadAt& load, const Use& use) {
  for (int first = begin; first < end; first += kBatch * stride) {
    decltype(load(0)) loaded[kBatch];
    TANDEM_UNROLL
    for (int i = 0; i < kBatch; ++i) {
      const int v = first + i * stride;
      if (v < end) loaded[i] = load(v);
    }
    TANDEM_UNROLL
    for (int i = 0; i < kBatch; ++i) {
      const int v = first + i * stride;
      if (v < end) use(v, loaded[i]);
    }
  }
}

// The sum of a row's squares has one order, whatever kernel computes it. Within a tile of 16
// columns it is PairOfSquares for g = 0 to 7, to which the sums of g ^ 1, g ^ 2 and g ^ 4 are added
// in turn; columns after the last are 0. Over tiles it has 32 chains from +0, by tile modulo 32, in
// increasing tile, which are added by WarpSum.
//
// Returns the sum of squares of columns g and g + 8 of a tile.
TANDEM_DEVICE float PairOfSquares(float first, float second) {
  return MulAdd(second, second, first * first);
}
// Returns the norm factor of a row of `count` numbers with the sum of squares `squares`.
TANDEM_DEVICE float InverseRoot(float squares, int count, float epsilon) {
  return 1.0f / SquareRoot(squares / static_cast<float>(count) + epsilon);
}

TANDEM_DEVICE float SoftCapped(float x, float cap) { return cap * HyperbolicTangent(x / cap); }

// Returns the score of a query and a key from their product. A template parameter, so that only
// kernels for models that cap scores spend the registers that tanh takes.
//   scale: AttentionForm's, times the key's own
template <bool kCaps>
TANDEM_DEVICE float ScoreOf(const AttentionForm& form, float scale, float product) {
  const float score = product * scale;
  if constexpr (kCaps) return SoftCapped(score, form.soft_cap);
  return score;
}

// Returns the page of a sequence's position.
TANDEM_DEVICE int64_t PageOf(const PagedKvView& kv, int sequence, int position) {
  return Load(kv.page_tables + int64_t{sequence} * kv.max_pages + position / kv.page_size);
}

// The sequence and position of a row.
struct RowPlace {
  int sequence;  // -1 for a row of padding, after the rows of the last sequence
  int position;
};
TANDEM_DEVICE RowPlace PlaceOf(const RaggedRows& rows, const int32_t* lengths, int row) {
  const int32_t* const place = rows.plan + int64_t{row} * kPlaceIntegers;
  const int sequence = Load(place), from_end = Load(place + 1);
  if (sequence < 0) return {-1, 0};
  return {sequence, Load(lengths + sequence) - from_end};
}

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_WARP_MATH_CUH_
