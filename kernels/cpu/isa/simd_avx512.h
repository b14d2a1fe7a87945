// 16 lanes of f32 by AVX-512. The vector vocabulary of the kernels: each simd_*.h defines the same
// names, a kernel translation unit includes one of them and then the *_kernels.h.
//
// Everything here and there has internal linkage: the linker must not replace one instruction
// set's code by another's.
#ifndef TANDEM_KERNELS_CPU_ISA_SIMD_AVX512_H_
#define TANDEM_KERNELS_CPU_ISA_SIMD_AVX512_H_

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace tandem {
namespace {

inline constexpr int kLanes = 16;
using Floats = __m512;

// Rows that a product takes at once, and how many of a panel's four vectors: 6 * 4 sums, 4 weights
// and a broadcast fill 32 registers.
inline constexpr int kMaxGroupRows = 6;
inline constexpr int SliceVectors(int) { return 4; }
// Query vectors that attention takes at once: 8 * 2 sums of scores, and as many of values, 2 being
// the vectors of a head's dimensions that it sums at once.
inline constexpr int kScoreRows = 8;
inline constexpr int kMixRows = 8;
inline constexpr int kMixVectors = 2;

inline Floats Zero() { return _mm512_setzero_ps(); }
inline Floats Splat(float x) { return _mm512_set1_ps(x); }
inline Floats Load(const float* p) { return _mm512_loadu_ps(p); }
inline void Store(float* p, Floats v) { _mm512_storeu_ps(p, v); }
inline __mmask16 FirstLanes(int count) { return static_cast<__mmask16>((1u << count) - 1); }
// The first `count` (0 to 16) lanes; the others are 0 and their memory is not touched.
inline Floats LoadPart(const float* p, int count) {
  return _mm512_maskz_loadu_ps(FirstLanes(count), p);
}
inline void StorePart(float* p, Floats v, int count) {
  _mm512_mask_storeu_ps(p, FirstLanes(count), v);
}

inline Floats Add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
inline Floats Sub(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
inline Floats Mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
inline Floats Div(Floats a, Floats b) { return _mm512_div_ps(a, b); }
// a * b + c, rounded once where the instruction set can.
inline Floats MulAdd(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
// b where either is NaN.
inline Floats Min(Floats a, Floats b) { return _mm512_min_ps(a, b); }
inline Floats Max(Floats a, Floats b) { return _mm512_max_ps(a, b); }

// Lanes [begin, end) of v, `other` elsewhere.
inline Floats KeepLanes(Floats v, int begin, int end, Floats other) {
  const __mmask16 mask = FirstLanes(end) & static_cast<__mmask16>(~FirstLanes(begin));
  return _mm512_mask_blend_ps(mask, other, v);
}
// x * 2^n of integers n in [-151, 128], rounded once.
inline Floats TimesPowerOfTwo(Floats x, Floats n) { return _mm512_scalef_ps(x, n); }
// The numbers whose bits are the low 9 of x's and zeros: of exponents in (0, 255), powers of two.
inline Floats LowBitsAsExponent(Floats x) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(x), 23));
}

// Sums, and maxima, by one tree: lanes 8 apart, then 4, 2, 1.
inline float Sum(Floats v) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
inline float Largest(Floats v) {
  const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

// The even and the odd one of each of 16 pairs.
inline Floats EvenBf16(const std::byte* pairs) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(pairs), 16));
}
inline Floats OddBf16(const std::byte* pairs) {
  return _mm512_castsi512_ps(
      _mm512_and_si512(_mm512_loadu_si512(pairs), _mm512_set1_epi32(-65536)));
}
inline Floats EvenF16(const std::byte* pairs) {
  return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_loadu_si512(pairs)));
}
inline Floats OddF16(const std::byte* pairs) {
  return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_loadu_si512(pairs), 16)));
}

// 16 elements in a row.
inline Floats WidenF16Row(const std::byte* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline Floats WidenBf16(const std::byte* p) {
  const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}
inline Floats WidenInt8(const std::byte* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
}
// The other way. The numbers are whole and fit.
inline void NarrowToInt8(int8_t* p, Floats v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v)));
}
// Byte j of each of 16 words, in increasing significance, as a signed number.
inline Floats Int8OfWords(const std::byte* words, int j) {
  const __m512i left = _mm512_slli_epi32(_mm512_loadu_si512(words), 24 - 8 * j);
  return _mm512_cvtepi32_ps(_mm512_srai_epi32(left, 24));
}

// ---- 16 lanes of 32 bits ----
using Words = __m512i;
inline Words SplatWord(uint32_t x) { return _mm512_set1_epi32(static_cast<int>(x)); }
inline Words LoadWords16(const uint32_t* p) { return _mm512_loadu_si512(p); }
inline void StoreWords16(uint32_t* p, Words v) { _mm512_storeu_si512(p, v); }
inline Words AddWords(Words a, Words b) { return _mm512_add_epi32(a, b); }
inline Words XorWords(Words a, Words b) { return _mm512_xor_si512(a, b); }
inline Words AndWords(Words a, Words b) { return _mm512_and_si512(a, b); }
inline Words OrWords(Words a, Words b) { return _mm512_or_si512(a, b); }
// Each word times 2^count, zeros moving in; count in (-32, 32).
inline Words ShiftWords(Words v, int count) {
  return count >= 0 ? _mm512_slli_epi32(v, count) : _mm512_srli_epi32(v, -count);
}
// The high and the low halves of the 64-bit products.
inline void MulWide(Words a, Words b, Words* high, Words* low) {
  const __m512i even = _mm512_mul_epu32(a, b);
  const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), b);
  *low = _mm512_mask_blend_epi32(0xAAAA, even, _mm512_slli_epi64(odd, 32));
  *high = _mm512_mask_blend_epi32(0xAAAA, _mm512_srli_epi64(even, 32), odd);
}
// The four bits of each byte that count less, and those that count more.
inline Words LowNibbles(Words v) { return _mm512_and_si512(v, _mm512_set1_epi8(15)); }
inline Words HighNibbles(Words v) {
  return _mm512_and_si512(_mm512_srli_epi16(v, 4), _mm512_set1_epi8(15));
}
// table[i] for each byte i < 16.
inline Words LookUp(const uint8_t (&table)[16], Words indices) {
  const __m128i entries = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(entries), indices);
}
// Dot(sum, a, b): sum + the four products of the unsigned bytes of `a` and the signed of `b`,
// exact. Where kHasPairs: DotPairs(pairs, a, b) adds the products of neighbouring bytes to lanes of
// 16 bits, which must suffice, and AddPairs(sum, pairs) adds those of each word to it. Where
// kIsSigned: DotSigned, as Dot of signed bytes of both, none of b's -128.
struct PlainDot {
  static constexpr bool kHasPairs = true;
  static constexpr bool kIsSigned = false;
  static Words DotPairs(Words pairs, Words a, Words b) {
    return _mm512_add_epi16(pairs, _mm512_maddubs_epi16(a, b));
  }
  static Words AddPairs(Words sum, Words pairs) {
    return _mm512_add_epi32(sum, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
  }
  static Words Dot(Words sum, Words a, Words b) {
    const __m512i even = _mm512_madd_epi16(_mm512_and_si512(a, _mm512_set1_epi16(255)),
                                           _mm512_srai_epi16(_mm512_slli_epi16(b, 8), 8));
    const __m512i odd = _mm512_madd_epi16(_mm512_srli_epi16(a, 8), _mm512_srai_epi16(b, 8));
    return _mm512_add_epi32(sum, _mm512_add_epi32(even, odd));
  }
};
// Each signed word as a number, rounded to nearest.
inline Floats SignedToFloats(Words v) { return _mm512_cvtepi32_ps(v); }
// Four words per lane become four lanes per word: with the lanes of `w` in the order 0, 4, 8, 12,
// 1, 5, ... of some items, w[j] holds the four words of items 4 j to 4 j + 3, one item after the
// other.
inline void TransposeWords(Words w[4]) {
  const __m512i a = _mm512_unpacklo_epi32(w[0], w[1]);
  const __m512i b = _mm512_unpackhi_epi32(w[0], w[1]);
  const __m512i c = _mm512_unpacklo_epi32(w[2], w[3]);
  const __m512i d = _mm512_unpackhi_epi32(w[2], w[3]);
  w[0] = _mm512_unpacklo_epi64(a, c);
  w[1] = _mm512_unpackhi_epi64(a, c);
  w[2] = _mm512_unpacklo_epi64(b, d);
  w[3] = _mm512_unpackhi_epi64(b, d);
}
// Each word as a number, rounded to nearest.
inline Floats ToFloats(Words v) { return _mm512_cvtepu32_ps(v); }
// Bit i is set where a <= b in lane i.
inline uint32_t AtMost(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ); }
// Bit i is set where lane i is no number.
inline uint32_t IsNan(Floats a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q); }

// Towards the L1 and the L2 cache. Any address will do.
inline void FetchNear(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
inline void FetchFar(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }

// Four columns of 16 rows. The four lanes of part q of x[i] come from row 4 q + i, so that
// transposing four by four inside the parts is all there is to do.
inline void TransposeFourColumns(const float* const* rows, int first_col, float* out,
                                 int out_stride) {
  __m512 x[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    x[i] = _mm512_castps128_ps512(_mm_loadu_ps(rows[i] + first_col));
    x[i] = _mm512_insertf32x4(x[i], _mm_loadu_ps(rows[4 + i] + first_col), 1);
    x[i] = _mm512_insertf32x4(x[i], _mm_loadu_ps(rows[8 + i] + first_col), 2);
    x[i] = _mm512_insertf32x4(x[i], _mm_loadu_ps(rows[12 + i] + first_col), 3);
  }
  const __m512 low01 = _mm512_unpacklo_ps(x[0], x[1]);
  const __m512 high01 = _mm512_unpackhi_ps(x[0], x[1]);
  const __m512 low23 = _mm512_unpacklo_ps(x[2], x[3]);
  const __m512 high23 = _mm512_unpackhi_ps(x[2], x[3]);
  Store(out, _mm512_shuffle_ps(low01, low23, 0x44));
  Store(out + out_stride, _mm512_shuffle_ps(low01, low23, 0xEE));
  Store(out + 2 * out_stride, _mm512_shuffle_ps(high01, high23, 0x44));
  Store(out + 3 * out_stride, _mm512_shuffle_ps(high01, high23, 0xEE));
}

// All 16 columns, so that of each row a cache line is read once: rows a page apart share a set of
// the L1 cache, which does not hold sixteen.
inline void TransposeSixteen(const float* const* rows, int first_col, float* out, int out_stride) {
  __m512 a[16], b[16];
#pragma GCC unroll 16
  for (int r = 0; r < 16; ++r) a[r] = Load(rows[r] + first_col);
#pragma GCC unroll 4
  for (int r = 0; r < 16; r += 4) {
    const __m512 low01 = _mm512_unpacklo_ps(a[r], a[r + 1]);
    const __m512 high01 = _mm512_unpackhi_ps(a[r], a[r + 1]);
    const __m512 low23 = _mm512_unpacklo_ps(a[r + 2], a[r + 3]);
    const __m512 high23 = _mm512_unpackhi_ps(a[r + 2], a[r + 3]);
    b[r] = _mm512_shuffle_ps(low01, low23, 0x44);
    b[r + 1] = _mm512_shuffle_ps(low01, low23, 0xEE);
    b[r + 2] = _mm512_shuffle_ps(high01, high23, 0x44);
    b[r + 3] = _mm512_shuffle_ps(high01, high23, 0xEE);
  }
  // Part q of b[4 p + c] is column 4 q + c of rows 4 p to 4 p + 3: the parts are transposed.
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512 even_low = _mm512_shuffle_f32x4(b[c], b[4 + c], 0x88);
    const __m512 odd_low = _mm512_shuffle_f32x4(b[c], b[4 + c], 0xDD);
    const __m512 even_high = _mm512_shuffle_f32x4(b[8 + c], b[12 + c], 0x88);
    const __m512 odd_high = _mm512_shuffle_f32x4(b[8 + c], b[12 + c], 0xDD);
    Store(out + c * out_stride, _mm512_shuffle_f32x4(even_low, even_high, 0x88));
    Store(out + (4 + c) * out_stride, _mm512_shuffle_f32x4(odd_low, odd_high, 0x88));
    Store(out + (8 + c) * out_stride, _mm512_shuffle_f32x4(even_low, even_high, 0xDD));
    Store(out + (12 + c) * out_stride, _mm512_shuffle_f32x4(odd_low, odd_high, 0xDD));
  }
}

// out[c * out_stride + r] = rows[r][first_col + c] for r < 16, c < cols <= 16.
inline void Transpose(const float* const* rows, int first_col, int cols, float* out,
                      int out_stride) {
  if (cols == 16) return TransposeSixteen(rows, first_col, out, out_stride);
  const int whole = cols / 4 * 4;
  for (int c = 0; c < whole; c += 4) {
    TransposeFourColumns(rows, first_col + c, out + c * out_stride, out_stride);
  }
  for (int c = whole; c < cols; ++c) {
    for (int r = 0; r < 16; ++r) out[c * out_stride + r] = rows[r][first_col + c];
  }
}

}  // namespace
}  // namespace tandem

#endif  // TANDEM_KERNELS_CPU_ISA_SIMD_AVX512_H_
