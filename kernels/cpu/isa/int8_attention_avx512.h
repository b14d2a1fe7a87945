// Attention over an int8 cache by dot products of bytes (int8_attention.h): the high and the low
// bytes of queries and weights are multiplied separately. Include it after simd_avx512.h.
#ifndef TANDEM_KERNELS_CPU_ISA_INT8_ATTENTION_AVX512_H_
#define TANDEM_KERNELS_CPU_ISA_INT8_ATTENTION_AVX512_H_

#include <immintrin.h>

#include <cstring>

#include "kernels/cpu/int8_attention.h"

namespace tandem {
namespace {

// As PlainDot. With the intrinsic, GCC 12 keeps each sum of a loop in two registers and in memory.
struct VnniDot {
  static constexpr bool kHasPairs = false;
  static constexpr bool kIsSigned = false;
  static __m512i Dot(__m512i sum, __m512i a, __m512i b) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
  }
};

}  // namespace

namespace {

inline constexpr int kPlanes = kQueryWords;  // low bytes, high bytes
// Query vectors that are processed at once: 4 vectors * 2 planes * 2 halves of a tile (or slices of
// 16 dimensions) are 16 sums.
inline constexpr int kDotVectors = 4;

// The constants of a query, which follow the words of its group's queries.
struct QueryEnd {
  // The initial values of the planes' sums: -128 times the sum of a plane's bytes, because 128 is
  // added to keys.
  int32_t first[kPlanes];
  float scale;
};

// Rounds to integers, which are in the low bits of the result.
inline __m512i RoundToBits(Floats x) { return _mm512_castps_si512(Add(x, Splat(0x1.8p23f))); }

inline void PackQuery(const float* query, int head_dim, uint32_t* words, int stride,
                      QueryEnd* end) {
  const QueryScale scale = QueryScaleOf(query, head_dim);
  const Floats inverse = Splat(scale.inverse);
  __m512i sums[kPlanes] = {};
  for (int d = 0; d < head_dim; d += kLanes) {
    const Floats x = LoadPart(query + d, head_dim - d < kLanes ? head_dim - d : kLanes);
    const __m512i bits =
        scale.inverse != 0.0f ? RoundToBits(Mul(x, inverse)) : _mm512_setzero_si512();
    const __m512i number = _mm512_srai_epi32(_mm512_slli_epi32(bits, 16), 16);
    const __m512i high = _mm512_srai_epi32(_mm512_add_epi32(number, _mm512_set1_epi32(128)), 8);
    const __m512i planes[kPlanes] = {_mm512_sub_epi32(number, _mm512_slli_epi32(high, 8)), high};
    for (int plane = 0; plane < kPlanes; ++plane) {
      sums[plane] = _mm512_add_epi32(sums[plane], planes[plane]);
      uint32_t four[kLanes / 4];
      const __m128i bytes = _mm512_cvtepi32_epi8(planes[plane]);
      std::memcpy(four, &bytes, sizeof(four));
      for (int i = 0; i < kLanes / 4 && d + 4 * i < head_dim; ++i) {
        words[(d / 4 + i) * stride + plane] = four[i];
      }
    }
  }
  for (int plane = 0; plane < kPlanes; ++plane) {
    end->first[plane] = -128 * _mm512_reduce_add_epi32(sums[plane]);
  }
  end->scale = scale.scale;
}

template <>
inline void PackQueries<Int8DotKv>(const AttendState& s) {
  PackIntegerQueries<kDotVectors, QueryEnd>(s);
}

// 256 * high + low, rounded once.
inline Floats PlanesSum(__m512i low, __m512i high) {
  return MulAdd(SignedToFloats(high), Splat(256.0f), SignedToFloats(low));
}

template <int kVectors>
void ScoreIntegers(const AttendState& s, const Tile& tile, int first_vector) {
  const int words = KvElementWords(KvDType::kInt8, s.head_dim);
  const uint32_t* query = GroupQueries(s, first_vector);
  const QueryEnd* ends = QueryEnds<QueryEnd>(s, first_vector, kVectors);
  __m512i sum[kVectors][kPlanes][kHalves];
#pragma GCC unroll 4
  for (int r = 0; r < kVectors; ++r) {
#pragma GCC unroll 2
    for (int plane = 0; plane < kPlanes; ++plane) {
      sum[r][plane][0] = sum[r][plane][1] = _mm512_set1_epi32(ends[r].first[plane]);
    }
  }
  const std::byte* keys[kHalves] = {tile.halves[0].keys, tile.halves[1].keys};
  Fetcher fetcher = *s.fetcher;
  for (int w = 0; w < words; ++w) {
    fetcher.Step();
    __m512i key[kHalves];
#pragma GCC unroll 2
    for (int h = 0; h < kHalves; ++h) {
      key[h] = _mm512_xor_si512(_mm512_loadu_si512(keys[h]), _mm512_set1_epi8(-128));
      keys[h] += tile.halves[h].key_stride;
    }
#pragma GCC unroll 4
    for (int r = 0; r < kVectors; ++r) {
#pragma GCC unroll 2
      for (int plane = 0; plane < kPlanes; ++plane) {
        const __m512i x = SplatWord(*query++);
#pragma GCC unroll 2
        for (int h = 0; h < kHalves; ++h) {
          sum[r][plane][h] = VnniDot::Dot(sum[r][plane][h], key[h], x);
        }
      }
    }
  }
  *s.fetcher = fetcher;
#pragma GCC unroll 4
  for (int r = 0; r < kVectors; ++r) {
    const Floats scale = Splat(ends[r].scale);
#pragma GCC unroll 2
    for (int h = 0; h < kHalves; ++h) {
      Store(s.scores + (first_vector + r) * kAttendTile + h * kLanes,
            Mul(PlanesSum(sum[r][0][h], sum[r][1][h]), scale));
    }
  }
}

// The words of a plane of weights. The low bytes come first.
inline constexpr int kPlaneWords = kAttendTile / 4;

inline void StoreIntegerWeights(const Floats* weights, const IntegerWeights& whole, float* out) {
  // The order that takes the low 16 bits of each lane.
  const __m512i order =
      _mm512_set_epi16(62, 60, 58, 56, 54, 52, 50, 48, 46, 44, 42, 40, 38, 36, 34, 32, 30, 28, 26,
                       24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  const __m512i numbers =
      _mm512_permutex2var_epi16(RoundToBits(Mul(weights[0], whole.factors[0])), order,
                                RoundToBits(Mul(weights[1], whole.factors[1])));
  auto* planes = reinterpret_cast<__m256i*>(out);
  _mm256_storeu_si256(planes, _mm512_cvtepi16_epi8(numbers));
  _mm256_storeu_si256(planes + 1, _mm512_cvtepi16_epi8(_mm512_srli_epi16(numbers, 8)));
  out[kWeightStep] = whole.step;
}

// The place of the interleaved values, after those that GatherWords may have written: word d of row
// i, [kAttendTile / 4, padded_dim], holds element d of the values of positions 4 i to 4 i + 3 of
// the tile.
inline uint32_t* InterleavedValues(const AttendState& s) {
  return reinterpret_cast<uint32_t*>(s.wide_values) + kPlaneWords * s.padded_dim;
}

inline void InterleaveValues(const AttendState& s, const Tile& tile) {
  // The unpack instructions interleave within parts of 16 bytes. Part q gets elements 4 q to 4 q +
  // 3 of each 16.
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  uint32_t* out = InterleavedValues(s);
  Fetcher fetcher = *s.fetcher;
  for (int i = 0; i < kAttendTile; i += 4, out += s.padded_dim) {
    const HalfTile& half = tile.halves[i / kLanes];
    const std::byte* values = half.values + i % kLanes * half.value_stride;
    for (int d = 0; d < s.head_dim; d += 64) {
      fetcher.Step();
      const int count = s.head_dim - d;
      const __mmask64 bytes = count < 64 ? (__mmask64{1} << count) - 1 : ~__mmask64{0};
      __m512i row[4];
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        const std::byte* elements = values + j * half.value_stride + d;
        row[j] = _mm512_permutexvar_epi32(order, _mm512_maskz_loadu_epi8(bytes, elements));
      }
      const __m512i low01 = _mm512_unpacklo_epi8(row[0], row[1]);
      const __m512i high01 = _mm512_unpackhi_epi8(row[0], row[1]);
      const __m512i low23 = _mm512_unpacklo_epi8(row[2], row[3]);
      const __m512i high23 = _mm512_unpackhi_epi8(row[2], row[3]);
      StoreWords16(out + d, _mm512_unpacklo_epi16(low01, low23));
      if (count > 16) StoreWords16(out + d + 16, _mm512_unpackhi_epi16(low01, low23));
      if (count > 32) StoreWords16(out + d + 32, _mm512_unpacklo_epi16(high01, high23));
      if (count > 48) StoreWords16(out + d + 48, _mm512_unpackhi_epi16(high01, high23));
    }
  }
  *s.fetcher = fetcher;
}

// sums += weights times interleaved values, for kWide * 16 dimensions from `d` on.
template <int kVectors, int kWide>
void MixIntegers(const AttendState& s, int first_vector, int d) {
  const uint32_t* values = InterleavedValues(s) + d;
  const float* weights = s.scores + first_vector * kAttendTile;
  __m512i sum[kVectors][kPlanes][kWide] = {};
  const float* factors = weights;
  for (int i = 0; i < kPlaneWords; ++i, values += s.padded_dim, ++factors) {
    __m512i value[kWide];
#pragma GCC unroll 2
    for (int v = 0; v < kWide; ++v) value[v] = LoadWords16(values + v * kLanes);
#pragma GCC unroll 4
    for (int r = 0; r < kVectors; ++r) {
#pragma GCC unroll 2
      for (int plane = 0; plane < kPlanes; ++plane) {
        const __m512i weight =
            _mm512_castps_si512(Splat(factors[r * kAttendTile + plane * kPlaneWords]));
#pragma GCC unroll 2
        for (int v = 0; v < kWide; ++v) {
          sum[r][plane][v] = VnniDot::Dot(sum[r][plane][v], weight, value[v]);
        }
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kVectors; ++r) {
    const float step = weights[r * kAttendTile + kWeightStep];
    if (step == 0.0f) continue;  // nothing to add: the sums keep even the sign of a zero
    float* sums = s.sums + static_cast<int64_t>(first_vector + r) * s.sum_stride + d;
#pragma GCC unroll 2
    for (int v = 0; v < kWide; ++v) {
      const Floats mixed = PlanesSum(sum[r][0][v], sum[r][1][v]);
      Store(sums + v * kLanes, MulAdd(mixed, Splat(step), Load(sums + v * kLanes)));
    }
  }
}

// One step for each word of keys and each group of vectors, and one for each four positions and 64
// dimensions of values.
template <>
inline int FetchSteps<Int8DotKv>(const AttendState& s) {
  const int groups = (s.num_vectors + kDotVectors - 1) / kDotVectors;
  return groups * KvElementWords(KvDType::kInt8, s.head_dim) +
         kPlaneWords * ((s.head_dim + 63) / 64);
}

template <>
inline void AttendTile<Int8DotKv, Int8DotKv>(const AttendState& s, int first, const Tile& tile) {
  ForGroups<kDotVectors>(s.num_vectors,
                         [&](int vector, auto count) { ScoreIntegers<count()>(s, tile, vector); });
  WeighIntegers(s, first, StoreIntegerWeights);
  InterleaveValues(s, tile);
  ForGroups<kDotVectors>(s.num_vectors, [&](int vector, auto count) {
    int d = 0;
    for (; d + kLanes < s.head_dim; d += 2 * kLanes) MixIntegers<count(), 2>(s, vector, d);
    if (d < s.head_dim) MixIntegers<count(), 1>(s, vector, d);
  });
}

}  // namespace

}  // namespace tandem

#endif  // TANDEM_KERNELS_CPU_ISA_INT8_ATTENTION_AVX512_H_
