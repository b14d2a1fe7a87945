// 16 lanes of f32 with AVX-512. This is the SIMD vocabulary of the kernels: each simd_*.h defines
// the same names, and a translation unit of kernels includes one of them and then the *_kernels.h.
//
// Everything in these headers has internal linkage: the linker must not replace the code of one
// instruction set by that of another.
#ifndef TANDEM_KERNELS_CPU_ISA_SIMD_AVX512_H_
#define TANDEM_KERNELS_CPU_ISA_SIMD_AVX512_H_

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace tandem {
namespace {

inline constexpr int kLanes = 16;
using Floats = __m512;

// The rows that a product multiplies at once, and the number of a panel's four vectors that it
// multiplies with them: 6 * 4 sums, 4 weights and a broadcast activation fit in 32 registers.
inline constexpr int kMaxGroupRows = 6;
inline constexpr int SliceVectors(int) { return 4; }
// The query vectors that attention processes at once: 8 for scores (8 * 2 sums), and 8 for sums of
// values, of which it computes kMixVectors vectors of a head's dimensions at once (8 * 2 sums).
inline constexpr int kScoreRows = 8;
inline constexpr int kMixRows = 8;
inline constexpr int kMixVectors = 2;

inline Floats Zero() { return _mm512_setzero_ps(); }
inline Floats Splat(float x) { return _mm512_set1_ps(x); }
inline Floats Load(const float* p) { return _mm512_loadu_ps(p); }
inline void Store(float* p, Floats v) { _mm512_storeu_ps(p, v); }
inline __mmask16 FirstLanes(int count) { return static_cast<__mmask16>((1u << count) - 1); }
// Loads the first `count` (0 to 16) lanes. The others are 0, and their memory is not touched.
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
// Min and Max return b if a or b is NaN.
inline Floats Min(Floats a, Floats b) { return _mm512_min_ps(a, b); }
inline Floats Max(Floats a, Floats b) { return _mm512_max_ps(a, b); }

// Lanes [begin, end) of v, `other` elsewhere.
inline Floats KeepLanes(Floats v, int begin, int end, Floats other) {
  const __mmask16 mask = FirstLanes(end) & static_cast<__mmask16>(~FirstLanes(begin));
  return _mm512_mask_blend_ps(mask, other, v);
}
// x * 2^n for integers n in [-151, 128], rounded once.
inline Floats TimesPowerOfTwo(Floats x, Floats n) { return _mm512_scalef_ps(x, n); }
// Moves the low 9 bits of each lane to the sign and exponent, and sets the others to 0. If the low
// bits are an exponent in (0, 255), the result is a power of two.
inline Floats LowBitsAsExponent(Floats x) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(x), 23));
}

// The sum, and the largest, of all lanes, by one tree: lanes 8 apart, then 4, 2, 1.
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

// Widens the even, or the odd, element of each of 16 pairs.
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

// Widens 16 consecutive elements.
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
// Narrows 16 lanes. REQUIRES: they are integers that fit an int8.
inline void NarrowToInt8(int8_t* p, Floats v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v)));
}
// Byte j (0 is the least significant) of each of 16 words, as a signed number.
inline Floats Int8OfWords(const std::byte* words, int j) {
  const __m512i left = _mm512_slli_epi32(_mm512_loadu_si512(words), 24 - 8 * j);
  return _mm512_cvtepi32_ps(_mm512_srai_epi32(left, 24));
}

// ---- 16 lanes of 32 bits ----
using Words = __m512i;
// Keeps the compiler from moving or regrouping what led to `v`.
inline void Pin(Words& v) { asm("" : "+v"(v)); }
inline Words SplatWord(uint32_t x) { return _mm512_set1_epi32(static_cast<int>(x)); }
inline Words LoadWords16(const uint32_t* p) { return _mm512_loadu_si512(p); }
inline void StoreWords16(uint32_t* p, Words v) { _mm512_storeu_si512(p, v); }
inline Words AddWords(Words a, Words b) { return _mm512_add_epi32(a, b); }
// Lanes of 16 bits, two in a word: a - b; v * factor modulo 2^16; and the word of the sum of its
// two lanes, each times `factor`.
inline Words SubPairs(Words a, Words b) { return _mm512_sub_epi16(a, b); }
inline Words ScalePairs(Words v, int16_t factor) {
  return _mm512_mullo_epi16(v, _mm512_set1_epi16(factor));
}
inline Words DotWithPairs(Words v, int16_t factor) {
  return _mm512_madd_epi16(v, _mm512_set1_epi16(factor));
}
inline Words XorWords(Words a, Words b) { return _mm512_xor_si512(a, b); }
inline Words AndWords(Words a, Words b) { return _mm512_and_si512(a, b); }
inline Words OrWords(Words a, Words b) { return _mm512_or_si512(a, b); }
// Shifts each word left by `count`, or right by -count if it is negative; count in (-32, 32).
inline Words ShiftWords(Words v, int count) {
  return count >= 0 ? _mm512_slli_epi32(v, count) : _mm512_srli_epi32(v, -count);
}
// The high and the low halves of the 64-bit products of unsigned words.
inline void MulWide(Words a, Words b, Words* high, Words* low) {
  const __m512i even = _mm512_mul_epu32(a, b);
  const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), b);
  *low = _mm512_mask_blend_epi32(0xAAAA, even, _mm512_slli_epi64(odd, 32));
  *high = _mm512_mask_blend_epi32(0xAAAA, _mm512_srli_epi64(even, 32), odd);
}
// The low four bits of each byte, and the high four bits.
inline Words LowNibbles(Words v) { return _mm512_and_si512(v, _mm512_set1_epi8(15)); }
inline Words HighNibbles(Words v) {
  return _mm512_and_si512(_mm512_srli_epi16(v, 4), _mm512_set1_epi8(15));
}
// table[i] for each byte i of `indices`.   REQUIRES: i < 16
inline Words LookUp(const uint8_t (&table)[16], Words indices) {
  const __m128i entries = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(entries), indices);
}
// The dot product of integers:
//   Dot(sum, a, b): sum + the four products of a word's unsigned bytes of `a` and signed bytes of
//     `b`, exact.
//   DotPairs(pairs, a, b), if kHasPairs: adds the sums of two neighbouring products, which must fit
//     16 bits, to lanes of 16 bits, modulo 2^16.
//   DotSigned, if kIsSigned: the same as Dot, but `a` is signed too. No byte of `b` may be -128.
struct PlainDot {
  static constexpr bool kHasPairs = true;
  static constexpr bool kIsSigned = false;
  static Words DotPairs(Words pairs, Words a, Words b) {
    return _mm512_add_epi16(pairs, _mm512_maddubs_epi16(a, b));
  }
  static Words Dot(Words sum, Words a, Words b) {
    const __m512i even = _mm512_madd_epi16(_mm512_and_si512(a, _mm512_set1_epi16(255)),
                                           _mm512_srai_epi16(_mm512_slli_epi16(b, 8), 8));
    const __m512i odd = _mm512_madd_epi16(_mm512_srli_epi16(a, 8), _mm512_srai_epi16(b, 8));
    return _mm512_add_epi32(sum, _mm512_add_epi32(even, odd));
  }
};
// Converts each signed word to f32, rounded to nearest.
inline Floats SignedToFloats(Words v) { return _mm512_cvtepi32_ps(v); }
// Transposes 16 items of four words each. Before, w[k] holds word k of the items, in the order 0,
// 4, 8, 12, 1, 5, ... Afterwards, w[j] holds the four words of items 4 j to 4 j + 3, one item after
// the other.
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
// Converts each unsigned word to f32, rounded to nearest.
inline Floats ToFloats(Words v) { return _mm512_cvtepu32_ps(v); }
// Bit i is set if a <= b in lane i.
inline uint32_t AtMost(Floats a, Floats b) { return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ); }
// Bit i is set if lane i is NaN.
inline uint32_t IsNan(Floats a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q); }

// Prefetches into the L1 cache, and into the L2 cache. Any address is allowed.
inline void FetchNear(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
inline void FetchFar(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }

// Transposes four columns of 16 rows. The four lanes of part q of x[i] are loaded from row 4 q + i,
// so that only four-by-four transpositions within the parts remain.
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

// Transposes 16 columns of 16 rows, so that each row's cache line is read once: rows a page apart
// share a set of the L1 cache, which does not hold 16 lines.
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
  // Part q of b[4 p + c] is column 4 q + c of rows 4 p to 4 p + 3. Transposes the parts.
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
