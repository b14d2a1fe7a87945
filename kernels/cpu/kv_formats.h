// How attention reads what a KV cache holds; include after a simd_*.h. Here every element becomes
// the f32 that it stands for (of int8 without its scale), exactly, so that a sum has the same bits
// whether elements are widened where they are used or before.
#ifndef TANDEM_KERNELS_CPU_KV_FORMATS_H_
#define TANDEM_KERNELS_CPU_KV_FORMATS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/paged_kv.h"

namespace tandem {
namespace {

// Each format has
//   kPerWord: elements of a word
//   kParts: multiplications that a word of keys takes
//   kPositions: positions whose values are multiplied at once
//   Part(words, j): what multiplication j takes of each of 16 words
//   Values<kWide, kPart>(p, stride, visible, count, out): what kWide multiplications take of 16
//     dimensions each, or one of the first `count`, of positions p, p + stride, ..., of which those
//     in `visible` are seen
//   Factor(x, y): the factor of one element, or of two, of a query
//   StoreWeights(out, weights): kAttendTile weights as factors
//   SplatFactor(p): a factor for every lane
//   kWidens: whether elements may be widened before they are used, by
//     Widen(elements): 16 elements in a row
//     Element(p): one
struct F32Factors {
  using Elements = Floats;
  static constexpr int kPositions = 1;
  static constexpr bool kWidens = true;
  static float Factor(float x, float) { return x; }
  static Floats SplatFactor(const float* p) { return Splat(*p); }
  static Floats Accumulate(Floats sum, Floats elements, Floats factor) {
    return MulAdd(elements, factor, sum);
  }
  static void StoreWeights(float* out, const Floats* weights) {
    for (int v = 0; v < kAttendTile / kLanes; ++v) Store(out + v * kLanes, weights[v]);
  }
};

// The first `count` of 16 elements in a row; no others are touched.
template <class Kv>
Floats WidenPart(const std::byte* elements, int count) {
  constexpr int kBytes = 4 / Kv::kPerWord;
  if (count == kLanes) return Kv::Widen(elements);
  std::byte part[kLanes * kBytes] = {};
  for (int i = 0; i < count * kBytes; ++i) part[i] = elements[i];
  return Kv::Widen(part);
}

template <class Kv, int kWide, bool kPart>
void WidenValues(const std::byte* p, int count, Floats* out) {
  constexpr int kBytes = kLanes * 4 / Kv::kPerWord;
#pragma GCC unroll 4
  for (int v = 0; v < kWide; ++v) {
    out[v] = kPart ? WidenPart<Kv>(p, count) : Kv::Widen(p + v * kBytes);
  }
}

struct F32Kv : F32Factors {
  static constexpr KvDType kDType = KvDType::kF32;
  static constexpr int kPerWord = 1;
  static constexpr int kParts = 1;
  template <int kWide, bool kPart>
  static void Values(const std::byte* p, int64_t, IndexRange, int count, Floats* out) {
    WidenValues<F32Kv, kWide, kPart>(p, count, out);
  }
  static Floats Part(const std::byte* words, int) { return Widen(words); }
  static Floats Widen(const std::byte* elements) {
    return Load(reinterpret_cast<const float*>(elements));
  }
  static float Element(const std::byte* p) {
    float x;
    __builtin_memcpy(&x, p, sizeof(x));
    return x;
  }
};

struct BF16Kv : F32Factors {
  static constexpr KvDType kDType = KvDType::kBF16;
  static constexpr int kPerWord = 2;
  static constexpr int kParts = 2;
  template <int kWide, bool kPart>
  static void Values(const std::byte* p, int64_t, IndexRange, int count, Floats* out) {
    WidenValues<BF16Kv, kWide, kPart>(p, count, out);
  }
  static Floats Part(const std::byte* words, int j) {
    return j == 0 ? EvenBf16(words) : OddBf16(words);
  }
  static Floats Widen(const std::byte* elements) { return WidenBf16(elements); }
  static float Element(const std::byte* p) {
    uint16_t half;
    __builtin_memcpy(&half, p, sizeof(half));
    const uint32_t bits = uint32_t{half} << 16;
    float x;
    __builtin_memcpy(&x, &bits, sizeof(x));
    return x;
  }
};

struct Int8Kv : F32Factors {
  static constexpr KvDType kDType = KvDType::kInt8;
  static constexpr int kPerWord = 4;
  static constexpr int kParts = 4;
  template <int kWide, bool kPart>
  static void Values(const std::byte* p, int64_t, IndexRange, int count, Floats* out) {
    WidenValues<Int8Kv, kWide, kPart>(p, count, out);
  }
  static Floats Part(const std::byte* words, int j) { return Int8OfWords(words, j); }
  static Floats Widen(const std::byte* elements) { return WidenInt8(elements); }
  static float Element(const std::byte* p) {
    return static_cast<float>(static_cast<int8_t>(static_cast<uint8_t>(*p)));
  }
};

}  // namespace
}  // namespace tandem

#endif  // TANDEM_KERNELS_CPU_KV_FORMATS_H_
