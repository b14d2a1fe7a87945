// 16 lanes of f32 in two registers of AVX2, with FMA and F16C. simd_avx512.h has the same names,
// and their contracts. The results have the same bits as there.
#ifndef TANDEM_KERNELS_CPU_ISA_SIMD_AVX2_H_
#define TANDEM_KERNELS_CPU_ISA_SIMD_AVX2_H_

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace tandem {
namespace {

inline constexpr int kLanes = 16;
struct Floats {
  __m256 low, high;
};

// For 16 registers: 8 to 12 of them hold sums.
inline constexpr int kMaxGroupRows = 6;
inline constexpr int SliceVectors(int rows) { return rows <= 2 ? 2 : 1; }
inline constexpr int kScoreRows = 3;
inline constexpr int kMixRows = 3;
inline constexpr int kMixVectors = 2;

inline Floats Splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline Floats Zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline Floats Load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void Store(float* p, Floats v) {
  _mm256_storeu_ps(p, v.low);
  _mm256_storeu_ps(p + 8, v.high);
}
// A mask of the lanes below `count`, for a register whose lane 0 is lane `first`.
inline __m256i FirstLanes(int count, int first) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(count - first), lane);
}
inline Floats LoadPart(const float* p, int count) {
  return {_mm256_maskload_ps(p, FirstLanes(count, 0)),
          _mm256_maskload_ps(p + 8, FirstLanes(count, 8))};
}
inline void StorePart(float* p, Floats v, int count) {
  _mm256_maskstore_ps(p, FirstLanes(count, 0), v.low);
  _mm256_maskstore_ps(p + 8, FirstLanes(count, 8), v.high);
}

inline Floats Add(Floats a, Floats b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
inline Floats Sub(Floats a, Floats b) {
  return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
inline Floats Mul(Floats a, Floats b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
inline Floats Div(Floats a, Floats b) {
  return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}
inline Floats MulAdd(Floats a, Floats b, Floats c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
inline Floats Min(Floats a, Floats b) {
  return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
}
inline Floats Max(Floats a, Floats b) {
  return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}

inline __m256 KeepPart(__m256 v, int begin, int end, int first, __m256 other) {
  const __m256i mask = _mm256_andnot_si256(FirstLanes(begin, first), FirstLanes(end, first));
  return _mm256_blendv_ps(other, v, _mm256_castsi256_ps(mask));
}
inline Floats KeepLanes(Floats v, int begin, int end, Floats other) {
  return {KeepPart(v.low, begin, end, 0, other.low), KeepPart(v.high, begin, end, 8, other.high)};
}
inline __m256 PowerOfTwo(__m256 n) {
  const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  return _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23));
}
inline __m256 TimesPowerOfTwoPart(__m256 x, __m256 n) {
  // Uses two factors, because 2^n may be subnormal or infinite.
  const __m256 half = _mm256_round_ps(_mm256_mul_ps(n, _mm256_set1_ps(0.5f)),
                                      _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  return _mm256_mul_ps(_mm256_mul_ps(x, PowerOfTwo(half)), PowerOfTwo(_mm256_sub_ps(n, half)));
}
inline Floats TimesPowerOfTwo(Floats x, Floats n) {
  return {TimesPowerOfTwoPart(x.low, n.low), TimesPowerOfTwoPart(x.high, n.high)};
}
inline __m256 LowBitsAsExponentPart(__m256 x) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(x), 23));
}
inline Floats LowBitsAsExponent(Floats x) {
  return {LowBitsAsExponentPart(x.low), LowBitsAsExponentPart(x.high)};
}

inline float Sum(Floats v) {
  const __m256 eight = _mm256_add_ps(v.low, v.high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
inline float Largest(Floats v) {
  const __m256 eight = _mm256_max_ps(v.low, v.high);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

inline __m256i LoadWords(const std::byte* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
inline Floats EvenBf16(const std::byte* pairs) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(LoadWords(pairs), 16)),
          _mm256_castsi256_ps(_mm256_slli_epi32(LoadWords(pairs + 32), 16))};
}
inline Floats OddBf16(const std::byte* pairs) {
  const __m256i high_halves = _mm256_set1_epi32(-65536);
  return {_mm256_castsi256_ps(_mm256_and_si256(LoadWords(pairs), high_halves)),
          _mm256_castsi256_ps(_mm256_and_si256(LoadWords(pairs + 32), high_halves))};
}
// Widens 16 words, each of which holds an f16 in its low half.
inline Floats WidenF16(__m256i first, __m256i second) {
  const __m256i halves = _mm256_permute4x64_epi64(_mm256_packus_epi32(first, second), 0xD8);
  return {_mm256_cvtph_ps(_mm256_castsi256_si128(halves)),
          _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1))};
}
inline Floats EvenF16(const std::byte* pairs) {
  const __m256i low_halves = _mm256_set1_epi32(65535);
  return WidenF16(_mm256_and_si256(LoadWords(pairs), low_halves),
                  _mm256_and_si256(LoadWords(pairs + 32), low_halves));
}
inline Floats OddF16(const std::byte* pairs) {
  return WidenF16(_mm256_srli_epi32(LoadWords(pairs), 16),
                  _mm256_srli_epi32(LoadWords(pairs + 32), 16));
}

inline __m128i LoadHalves(const std::byte* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}
inline Floats WidenF16Row(const std::byte* p) {
  return {_mm256_cvtph_ps(LoadHalves(p)), _mm256_cvtph_ps(LoadHalves(p + 16))};
}
inline __m256 WidenBf16Part(const std::byte* p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(LoadHalves(p)), 16));
}
inline Floats WidenBf16(const std::byte* p) { return {WidenBf16Part(p), WidenBf16Part(p + 16)}; }
inline Floats WidenInt8(const std::byte* p) {
  const __m128i bytes = LoadHalves(p);
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
          _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
}
inline void NarrowToInt8(int8_t* p, Floats v) {
  const __m256i halves = _mm256_permute4x64_epi64(
      _mm256_packs_epi32(_mm256_cvtps_epi32(v.low), _mm256_cvtps_epi32(v.high)), 0xD8);
  _mm_storeu_si128(
      reinterpret_cast<__m128i*>(p),
      _mm_packs_epi16(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1)));
}
inline __m256 Int8OfWordsPart(__m256i words, int j) {
  return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(words, 24 - 8 * j), 24));
}
inline Floats Int8OfWords(const std::byte* words, int j) {
  return {Int8OfWordsPart(LoadWords(words), j), Int8OfWordsPart(LoadWords(words + 32), j)};
}

struct Words {
  __m256i low, high;
};
// Keeps the compiler from moving or regrouping what led to `v`.
inline void Pin(Words& v) { asm("" : "+x"(v.low), "+x"(v.high)); }
inline Words SplatWord(uint32_t x) {
  const __m256i v = _mm256_set1_epi32(static_cast<int>(x));
  return {v, v};
}
inline Words LoadWords16(const uint32_t* p) {
  const auto* v = reinterpret_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(v), _mm256_loadu_si256(v + 1)};
}
inline void StoreWords16(uint32_t* p, Words v) {
  auto* out = reinterpret_cast<__m256i*>(p);
  _mm256_storeu_si256(out, v.low);
  _mm256_storeu_si256(out + 1, v.high);
}
inline Words AddWords(Words a, Words b) {
  return {_mm256_add_epi32(a.low, b.low), _mm256_add_epi32(a.high, b.high)};
}
inline Words SubPairs(Words a, Words b) {
  return {_mm256_sub_epi16(a.low, b.low), _mm256_sub_epi16(a.high, b.high)};
}
inline Words ScalePairs(Words v, int16_t factor) {
  const __m256i factors = _mm256_set1_epi16(factor);
  return {_mm256_mullo_epi16(v.low, factors), _mm256_mullo_epi16(v.high, factors)};
}
inline Words DotWithPairs(Words v, int16_t factor) {
  const __m256i factors = _mm256_set1_epi16(factor);
  return {_mm256_madd_epi16(v.low, factors), _mm256_madd_epi16(v.high, factors)};
}
inline Words XorWords(Words a, Words b) {
  return {_mm256_xor_si256(a.low, b.low), _mm256_xor_si256(a.high, b.high)};
}
inline Words AndWords(Words a, Words b) {
  return {_mm256_and_si256(a.low, b.low), _mm256_and_si256(a.high, b.high)};
}
inline Words OrWords(Words a, Words b) {
  return {_mm256_or_si256(a.low, b.low), _mm256_or_si256(a.high, b.high)};
}
inline Words ShiftWords(Words v, int count) {
  return count >= 0 ? Words{_mm256_slli_epi32(v.low, count), _mm256_slli_epi32(v.high, count)}
                    : Words{_mm256_srli_epi32(v.low, -count), _mm256_srli_epi32(v.high, -count)};
}
inline Words LookUp(const uint8_t (&table)[16], Words indices) {
  const __m256i entries =
      _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
  return {_mm256_shuffle_epi8(entries, indices.low), _mm256_shuffle_epi8(entries, indices.high)};
}
inline __m256i LowNibblesPart(__m256i v) { return _mm256_and_si256(v, _mm256_set1_epi8(15)); }
inline Words LowNibbles(Words v) { return {LowNibblesPart(v.low), LowNibblesPart(v.high)}; }
inline Words HighNibbles(Words v) {
  return LowNibbles({_mm256_srli_epi16(v.low, 4), _mm256_srli_epi16(v.high, 4)});
}
struct PlainDot {
  static constexpr bool kHasPairs = true;
  static constexpr bool kIsSigned = true;
  static Words DotPairs(Words pairs, Words a, Words b) {
    return {_mm256_add_epi16(pairs.low, _mm256_maddubs_epi16(a.low, b.low)),
            _mm256_add_epi16(pairs.high, _mm256_maddubs_epi16(a.high, b.high))};
  }
  // Moves the sign of `a` to `b`. The sum of two products of at most 128 * 127 fits 16 bits.
  static __m256i SignedPart(__m256i sum, __m256i a, __m256i b) {
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(a), _mm256_sign_epi8(b, a));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
  static Words DotSigned(Words sum, Words a, Words b) {
    return {SignedPart(sum.low, a.low, b.low), SignedPart(sum.high, a.high, b.high)};
  }
  static __m256i Part(__m256i sum, __m256i a, __m256i b) {
    const __m256i even = _mm256_madd_epi16(_mm256_and_si256(a, _mm256_set1_epi16(255)),
                                           _mm256_srai_epi16(_mm256_slli_epi16(b, 8), 8));
    const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(a, 8), _mm256_srai_epi16(b, 8));
    return _mm256_add_epi32(sum, _mm256_add_epi32(even, odd));
  }
  static Words Dot(Words sum, Words a, Words b) {
    return {Part(sum.low, a.low, b.low), Part(sum.high, a.high, b.high)};
  }
};
inline Floats SignedToFloats(Words v) {
  return {_mm256_cvtepi32_ps(v.low), _mm256_cvtepi32_ps(v.high)};
}
inline void MulWidePart(__m256i a, __m256i b, __m256i* high, __m256i* low) {
  const __m256i even = _mm256_mul_epu32(a, b);
  const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), b);
  *low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
  *high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
}
inline void MulWide(Words a, Words b, Words* high, Words* low) {
  MulWidePart(a.low, b.low, &high->low, &low->low);
  MulWidePart(a.high, b.high, &high->high, &low->high);
}
inline void TransposeWordsPart(__m256i* w0, __m256i* w1, __m256i* w2, __m256i* w3) {
  const __m256i a = _mm256_unpacklo_epi32(*w0, *w1);
  const __m256i b = _mm256_unpackhi_epi32(*w0, *w1);
  const __m256i c = _mm256_unpacklo_epi32(*w2, *w3);
  const __m256i d = _mm256_unpackhi_epi32(*w2, *w3);
  *w0 = _mm256_unpacklo_epi64(a, c);
  *w1 = _mm256_unpackhi_epi64(a, c);
  *w2 = _mm256_unpacklo_epi64(b, d);
  *w3 = _mm256_unpackhi_epi64(b, d);
}
inline void TransposeWords(Words w[4]) {
  TransposeWordsPart(&w[0].low, &w[1].low, &w[2].low, &w[3].low);
  TransposeWordsPart(&w[0].high, &w[1].high, &w[2].high, &w[3].high);
}
// Converts the two halves of a word exactly, so that only their sum rounds.
inline __m256 ToFloatsPart(__m256i v) {
  const __m256 high = _mm256_cvtepi32_ps(_mm256_srli_epi32(v, 16));
  const __m256 low = _mm256_cvtepi32_ps(_mm256_and_si256(v, _mm256_set1_epi32(65535)));
  return _mm256_fmadd_ps(high, _mm256_set1_ps(65536.0f), low);
}
inline Floats ToFloats(Words v) { return {ToFloatsPart(v.low), ToFloatsPart(v.high)}; }
inline uint32_t AtMost(Floats a, Floats b) {
  return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a.low, b.low, _CMP_LE_OQ))) |
         static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a.high, b.high, _CMP_LE_OQ))) << 8;
}
inline uint32_t IsNan(Floats a) {
  return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a.low, a.low, _CMP_UNORD_Q))) |
         static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a.high, a.high, _CMP_UNORD_Q)))
             << 8;
}

inline void FetchNear(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
inline void FetchFar(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }

// The same as Transpose, for 8 rows and at most the first 8 of `cols` columns.
inline void TransposeEight(const float* const* rows, int first_col, int cols, float* out,
                           int out_stride) {
  const __m256i mask = FirstLanes(cols, 0);
  __m256 a[8], b[8];
#pragma GCC unroll 8
  for (int r = 0; r < 8; ++r) a[r] = _mm256_maskload_ps(rows[r] + first_col, mask);
#pragma GCC unroll 4
  for (int r = 0; r < 8; r += 2) {
    b[r] = _mm256_unpacklo_ps(a[r], a[r + 1]);
    b[r + 1] = _mm256_unpackhi_ps(a[r], a[r + 1]);
  }
#pragma GCC unroll 2
  for (int r = 0; r < 8; r += 4) {
    a[r] = _mm256_shuffle_ps(b[r], b[r + 2], 0x44);
    a[r + 1] = _mm256_shuffle_ps(b[r], b[r + 2], 0xEE);
    a[r + 2] = _mm256_shuffle_ps(b[r + 1], b[r + 3], 0x44);
    a[r + 3] = _mm256_shuffle_ps(b[r + 1], b[r + 3], 0xEE);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    b[i] = _mm256_permute2f128_ps(a[i], a[4 + i], 0x20);
    b[4 + i] = _mm256_permute2f128_ps(a[i], a[4 + i], 0x31);
  }
#pragma GCC unroll 8
  for (int c = 0; c < 8; ++c) {
    if (c < cols) _mm256_storeu_ps(out + c * out_stride, b[c]);
  }
}

inline void Transpose(const float* const* rows, int first_col, int cols, float* out,
                      int out_stride) {
  for (int r = 0; r < 16; r += 8) {
    for (int c = 0; c < cols; c += 8) {
      TransposeEight(rows + r, first_col + c, cols - c, out + c * out_stride + r, out_stride);
    }
  }
}

}  // namespace
}  // namespace tandem

#endif  // TANDEM_KERNELS_CPU_ISA_SIMD_AVX2_H_
