// Attention over an int8 cache by dot products of pairs of 16-bit integers (int8_attention.h).
// Include it after simd_avx2.h.
#ifndef TANDEM_KERNELS_CPU_ISA_INT8_ATTENTION_AVX2_H_
#define TANDEM_KERNELS_CPU_ISA_INT8_ATTENTION_AVX2_H_

#include <immintrin.h>

#include <cstring>

#include "kernels/cpu/int8_attention.h"

namespace tandem {
namespace {

// Query vectors that are processed at once: 5 vectors * 16 positions (or dimensions) are 10 sums.
inline constexpr int kDotVectors = 5;
// Sums of more products of a query's integers and keys might not fit 32 bits.
inline constexpr int kMaxDotHeadDim = 512;
static_assert(kMaxQuery * 127 * kMaxDotHeadDim < 0x1p31f);

// sum + the products of two pairs of 16-bit integers, for each word. The empty statement keeps GCC
// 12 from regrouping the sums, which then would not fit the registers.
inline __m256i AddDot(__m256i sum, __m256i a, __m256i b) {
  sum = _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
  asm("" : "+x"(sum));
  return sum;
}
inline __m256i SplatWordAt(const void* p) {
  int32_t word;
  std::memcpy(&word, p, sizeof(word));
  return _mm256_set1_epi32(word);
}
inline __m256i ToIntegers(__m256 x, __m256 factors) {
  return _mm256_cvtps_epi32(_mm256_mul_ps(x, factors));
}
// The integers of 16 words as 16 bits each, in order.   REQUIRES: they fit
inline __m256i NarrowWords(__m256i low, __m256i high) {
  return _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xD8);
}

struct QueryEnd {
  float scale;
};

// A word of keys has four elements, whose factors are in two words: those of the elements 0 and 2,
// and those of 1 and 3.
inline void PackQuery(const float* query, int head_dim, uint32_t* words, int stride,
                      QueryEnd* end) {
  const QueryScale scale = QueryScaleOf(query, head_dim);
  const __m256 inverse = _mm256_set1_ps(scale.inverse);
  for (int d = 0; d < head_dim; d += kLanes) {
    const Floats x = LoadPart(query + d, head_dim - d < kLanes ? head_dim - d : kLanes);
    uint16_t numbers[kLanes] = {};
    if (scale.inverse != 0.0f) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(numbers),
                          NarrowWords(ToIntegers(x.low, inverse), ToIntegers(x.high, inverse)));
    }
    for (int i = 0; i < kLanes && d + i < head_dim; i += 4) {
      uint32_t* const pairs = words + (d + i) / 4 * stride;
      pairs[0] = numbers[i] | uint32_t{numbers[i + 2]} << 16;
      pairs[1] = numbers[i + 1] | uint32_t{numbers[i + 3]} << 16;
    }
  }
  end->scale = scale.scale;
}

template <>
inline void PackQueries<Int8DotKv>(const AttendState& s) {
  PackIntegerQueries<kDotVectors, QueryEnd>(s);
}

template <int kVectors>
void ScoreIntegers(const AttendState& s, const Tile& tile, int first_vector) {
  const int words = KvElementWords(KvDType::kInt8, s.head_dim);
  const QueryEnd* ends = QueryEnds<QueryEnd>(s, first_vector, kVectors);
  Fetcher fetcher = *s.fetcher;
  for (int h = 0; h < kHalves; ++h) {
    const uint32_t* query = GroupQueries(s, first_vector);
    const std::byte* keys = tile.halves[h].keys;
    __m256i sum[kVectors][2] = {};
    for (int w = 0; w < words; ++w, keys += tile.halves[h].key_stride) {
      fetcher.Step();
      __m256i even[2], odd[2];
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        const __m256i key = LoadWords(keys + 32 * i);
        even[i] = _mm256_srai_epi16(_mm256_slli_epi16(key, 8), 8);
        odd[i] = _mm256_srai_epi16(key, 8);
      }
#pragma GCC unroll 5
      for (int r = 0; r < kVectors; ++r, query += kQueryWords) {
        const __m256i of_even = SplatWordAt(query);
        for (int i = 0; i < 2; ++i) sum[r][i] = AddDot(sum[r][i], even[i], of_even);
        const __m256i of_odd = SplatWordAt(query + 1);
        for (int i = 0; i < 2; ++i) sum[r][i] = AddDot(sum[r][i], odd[i], of_odd);
      }
    }
#pragma GCC unroll 5
    for (int r = 0; r < kVectors; ++r) {
      Store(s.scores + (first_vector + r) * kAttendTile + h * kLanes,
            Mul(SignedToFloats({sum[r][0], sum[r][1]}), Splat(ends[r].scale)));
    }
  }
  *s.fetcher = fetcher;
}

// Weights are stored minus this, to fit signed integers of 16 bits.
inline constexpr int kWeightOffset = 1 << 15;

inline void StoreIntegerWeights(const Floats* weights, const IntegerWeights& whole, float* out) {
  const __m256i offset = _mm256_set1_epi32(kWeightOffset);
  for (int h = 0; h < kHalves; ++h) {
    const __m256i low = ToIntegers(weights[h].low, whole.factors[h].low);
    const __m256i high = ToIntegers(weights[h].high, whole.factors[h].high);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + h * kLanes / 2),
                        NarrowWords(_mm256_sub_epi32(low, offset), _mm256_sub_epi32(high, offset)));
  }
  out[kWeightStep] = whole.step;
}

// The place of the interleaved values, after those that GatherWords may have written: word d of row
// i, [kAttendTile / 2, padded_dim], holds element d of the values of positions 2 i and 2 i + 1 of
// the tile, with 16 bits each. Then follows kWeightOffset times the sum of all values,
// [padded_dim].
inline uint32_t* InterleavedValues(const AttendState& s) {
  return reinterpret_cast<uint32_t*>(s.wide_values) + kAttendTile / 4 * s.padded_dim;
}

// 16 elements of 8 bits, or the first `count`, as 16 bits each.
inline __m256i WidenToPairs(const std::byte* elements, int count) {
  if (count >= kLanes) return _mm256_cvtepi8_epi16(LoadHalves(elements));
  std::byte part[kLanes] = {};
  for (int i = 0; i < count; ++i) part[i] = elements[i];
  return _mm256_cvtepi8_epi16(LoadHalves(part));
}

inline void InterleaveValues(const AttendState& s, const Tile& tile) {
  const __m256i ones = _mm256_set1_epi16(1);
  Fetcher fetcher = *s.fetcher;
  for (int d = 0; d < s.head_dim; d += kLanes) {
    uint32_t* out = InterleavedValues(s) + d;
    __m256i low_sum = _mm256_setzero_si256();
    __m256i high_sum = low_sum;
    for (int i = 0; i < kAttendTile; i += 2, out += s.padded_dim) {
      fetcher.Step();
      const HalfTile& half = tile.halves[i / kLanes];
      const std::byte* values = half.values + i % kLanes * half.value_stride + d;
      const __m256i first = WidenToPairs(values, s.head_dim - d);
      const __m256i second = WidenToPairs(values + half.value_stride, s.head_dim - d);
      // The unpack instructions interleave within parts of 16 bytes.
      const __m256i a = _mm256_unpacklo_epi16(first, second);
      const __m256i b = _mm256_unpackhi_epi16(first, second);
      const Words pairs = {_mm256_permute2x128_si256(a, b, 0x20),
                           _mm256_permute2x128_si256(a, b, 0x31)};
      StoreWords16(out, pairs);
      low_sum = AddDot(low_sum, pairs.low, ones);
      high_sum = AddDot(high_sum, pairs.high, ones);
    }
    StoreWords16(out, ShiftWords({low_sum, high_sum}, 15));
  }
  *s.fetcher = fetcher;
}

// sums += weights times interleaved values, for 16 dimensions from `d` on.
template <int kVectors>
void MixIntegers(const AttendState& s, int first_vector, int d) {
  const uint32_t* values = InterleavedValues(s) + d;
  const float* weights = s.scores + first_vector * kAttendTile;
  const Words offset = LoadWords16(values + kAttendTile / 2 * s.padded_dim);
  __m256i sum[kVectors][2];
#pragma GCC unroll 5
  for (int r = 0; r < kVectors; ++r) {
    sum[r][0] = offset.low;
    sum[r][1] = offset.high;
  }
  const float* pairs = weights;
  for (int i = 0; i < kAttendTile / 2; ++i, values += s.padded_dim, ++pairs) {
    const Words value = LoadWords16(values);
#pragma GCC unroll 5
    for (int r = 0; r < kVectors; ++r) {
      const __m256i weight = SplatWordAt(pairs + r * kAttendTile);
      sum[r][0] = AddDot(sum[r][0], value.low, weight);
      sum[r][1] = AddDot(sum[r][1], value.high, weight);
    }
  }
#pragma GCC unroll 5
  for (int r = 0; r < kVectors; ++r) {
    const float step = weights[r * kAttendTile + kWeightStep];
    if (step == 0.0f) continue;  // nothing to add: the sums keep even the sign of a zero
    float* sums = s.sums + static_cast<int64_t>(first_vector + r) * s.sum_stride + d;
    Store(sums, MulAdd(SignedToFloats({sum[r][0], sum[r][1]}), Splat(step), Load(sums)));
  }
}

// One step for each word of a half tile's keys and each group of vectors, and one for each two
// positions and 16 dimensions of values.
template <>
inline int FetchSteps<Int8DotKv>(const AttendState& s) {
  const int groups = (s.num_vectors + kDotVectors - 1) / kDotVectors;
  return groups * kHalves * KvElementWords(KvDType::kInt8, s.head_dim) +
         s.padded_dim / kLanes * (kAttendTile / 2);
}

template <>
inline void AttendTile<Int8DotKv, Int8DotKv>(const AttendState& s, int first, const Tile& tile) {
  ForGroups<kDotVectors>(s.num_vectors,
                         [&](int vector, auto count) { ScoreIntegers<count()>(s, tile, vector); });
  WeighIntegers(s, first, StoreIntegerWeights);
  InterleaveValues(s, tile);
  ForGroups<kDotVectors>(s.num_vectors, [&](int vector, auto count) {
    for (int d = 0; d < s.head_dim; d += kLanes) MixIntegers<count()>(s, vector, d);
  });
}

inline void AttendInt8Rounded(const AttendTask& task, const AttendUnit& unit, float* scratch) {
  const auto attend = task.kv.head_dim <= kMaxDotHeadDim ? AttendOf<Int8DotKv> : AttendOf<Int8Kv>;
  attend(task, unit, scratch);
}

constexpr CpuKernels WithInt8Attention(CpuKernels kernels) {
  kernels.attend_rounded[static_cast<int>(KvDType::kInt8)] = AttendInt8Rounded;
  return kernels;
}

}  // namespace
}  // namespace tandem

#endif  // TANDEM_KERNELS_CPU_ISA_INT8_ATTENTION_AVX2_H_
