// The arithmetic of tensor cores on one output, bit by bit: mma.sync.m16n8k16 of bf16 and f32 and,
// on Hopper, wgmma, whose k is 16 too. The source is "MMA-Sim: Bit-Accurate Reference Model of
// Tensor Cores and Matrix Cores" (arXiv 2511.10909).
//
// A fused sum adds an f32 number and several products. A product is exact, and its exponent is the
// sum of its factors' exponents: it is not normalised, and 0 and subnormal numbers have the
// exponent of the smallest normal one. All terms are aligned to the largest exponent and truncated
// toward 0 after a fixed number of fraction bits. Their sum is exact, and is truncated to f32,
// including subnormal numbers; from 2^128 on it is infinite. Infinities and NaN follow real
// arithmetic. A sum of 0 is +0, and NaN is 0x7FFFFFFF.
#ifndef TANDEM_TESTS_SIMT_TENSOR_CORE_ARITHMETIC_H_
#define TANDEM_TESTS_SIMT_TENSOR_CORE_ARITHMETIC_H_

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace tandem::simt {

struct TensorCore {
  int fraction_bits;  // of aligned terms
  int num_products;   // per fused sum; sums are chained in increasing k
};
inline constexpr TensorCore kAmpere = {24, 8};  // and Ada
inline constexpr TensorCore kHopper = {25, 16};
inline constexpr int kTensorDepth = 16;  // products per instruction

// An f32 number, whose high half is its bf16 form.
struct TensorNumber {
  float value;
  int32_t significand;  // times 2^(exponent - 23), signed
  int exponent;         // 128 if it is not finite

  static TensorNumber Of(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const int field = static_cast<int>(bits >> 23 & 0xFF);
    const auto significand = static_cast<int32_t>((bits & 0x7FFFFF) | (field == 0 ? 0 : 0x800000));
    return {value, bits >> 31 != 0 ? -significand : significand, std::max(field, 1) - 127};
  }
  static TensorNumber OfBf16(uint16_t bits) {
    return Of(std::bit_cast<float>(uint32_t{bits} << 16));
  }
};

// Returns sum * 2^exponent, truncated to f32. REQUIRES: exponent >= -151.
inline float CutToFloat(int64_t sum, int exponent) {
  const uint64_t magnitude = static_cast<uint64_t>(std::abs(sum));
  if (magnitude == 0) return 0.0f;
  const int largest = static_cast<int>(std::bit_width(magnitude)) - 1 + exponent;
  if (largest > 127) return sum < 0 ? -HUGE_VALF : HUGE_VALF;
  const int shift = std::max(largest, -126) - 23 - exponent;
  const uint64_t significand = shift >= 0 ? magnitude >> shift : magnitude << -shift;
  // The leading bit of a normal number adds 1 to the exponent's field.
  const auto field = static_cast<uint64_t>(std::max(largest, -126) + 126) << 23;
  const auto bits = static_cast<uint32_t>(field + significand);
  return std::bit_cast<float>(sum < 0 ? bits | 0x80000000u : bits);
}

// a, b: [count]
inline float FusedSum(const TensorNumber* a, const TensorNumber* b, int count, float start,
                      int fraction_bits) {
  const TensorNumber first = TensorNumber::Of(start);
  int largest = first.exponent;
  bool is_finite = first.exponent < 128;
  for (int k = 0; k < count; ++k) {
    largest = std::max(largest, a[k].exponent + b[k].exponent);
    is_finite = is_finite && a[k].exponent < 128 && b[k].exponent < 128;
  }
  if (!is_finite) {
    double sum = start;
    for (int k = 0; k < count; ++k) sum += double{a[k].value} * b[k].value;
    return std::isnan(sum) ? std::bit_cast<float>(0x7FFFFFFF) : static_cast<float>(sum);
  }
  // significand: has 46 fraction bits, like products
  const auto cut = [&](int64_t significand, int exponent) {
    const int shift = std::min(46 - fraction_bits + largest - exponent, 63);
    return significand < 0 ? -(-significand >> shift) : significand >> shift;
  };
  int64_t sum = cut(int64_t{first.significand} << 23, first.exponent);
  for (int k = 0; k < count; ++k) {
    sum += cut(int64_t{a[k].significand} * b[k].significand, a[k].exponent + b[k].exponent);
  }
  return CutToFloat(sum, largest - fraction_bits);
}

// Returns an output's sum after one instruction.   a, b: [kTensorDepth]
inline float MultiplyAndAdd(const TensorCore& core, const TensorNumber* a, const TensorNumber* b,
                            float sum) {
  for (int k = 0; k < kTensorDepth; k += core.num_products) {
    sum = FusedSum(a + k, b + k, core.num_products, sum, core.fraction_bits);
  }
  return sum;
}

}  // namespace tandem::simt

#endif  // TANDEM_TESTS_SIMT_TENSOR_CORE_ARITHMETIC_H_
