// Attention of one unit over the paged cache; include after a simd_*.h.
//
// A query vector is one (row, head). Its softmax runs online over tiles of kAttendTile absolute
// positions in increasing order, begins anew with every chunk of kAttendChunk, and chunks are
// merged in increasing order. Scores have lanes over positions and one chain over the head's
// dimensions, mixes of values lanes over dimensions and one chain over the visible positions, so a
// vector's bits do not depend on the other vectors of the unit. Lanes that it may not see are
// replaced before the softmax and left out after it, never multiplied by zero: the cache may hold
// NaN there.
#ifndef TANDEM_KERNELS_CPU_ATTENTION_KERNELS_H_
#define TANDEM_KERNELS_CPU_ATTENTION_KERNELS_H_

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/exponential.h"
#include "kernels/cpu/kv_formats.h"

namespace tandem {
namespace {

inline constexpr int kHalves = kAttendTile / kLanes;

// 16 positions of a tile: word w of their keys from keys + w * key_stride, elements of value i from
// values + i * value_stride. Zeros, with strides of 0, where the unit sees none of them.
struct HalfTile {
  const std::byte* keys;
  const std::byte* values;
  int64_t key_stride;  // bytes
  int64_t value_stride;
};
struct Tile {
  HalfTile halves[kHalves];
};

// The cache lines of the tile after the one whose turn it is, fetched a few at a time: pages are
// too short for the hardware to follow, and a core waits for no more than some 24 lines at once.
struct Fetcher {
  const std::byte** lines;  // [AttendTileLines]
  int next;
  int end;
  int per_step;

  void Step() {
    for (int i = 0; i < per_step && next < end; ++i) FetchFar(lines[next++]);
  }
};

// What a unit works on: `num_vectors` vectors, those of a row next to each other.
struct AttendState {
  const AttendTask* task;
  const AttendUnit* unit;
  int num_heads;  // of the unit
  int num_vectors;
  int head_dim;
  int padded_dim;
  IndexRange visible;  // positions that any vector sees

  float* sums;  // [num_vectors, sum_stride]: weighted values so far, then lanes of exponentials
  float* references;  // [num_vectors]: what scores are compared with
  int sum_stride;

  float* queries;       // [groups of up to kScoreRows vectors][head_dim, vectors of the group]
  float* scores;        // [num_vectors, kAttendTile]: of this tile, then their exponentials
  float* wide_keys;     // [head_dim, kAttendTile]
  float* wide_values;   // [kAttendTile, padded_dim]
  float* zeros;         // [padded_dim]
  float* key_scales;    // [kAttendTile]: what scores are multiplied by
  float* value_scales;  // [kAttendTile], if the cache has scales

  Fetcher* fetcher;

  int row(int vector) const { return unit->rows.begin + vector / num_heads; }
  int position(int vector) const { return unit->first_position + vector / num_heads; }
  int64_t column(int vector) const {
    return static_cast<int64_t>(unit->kv_head * num_heads + vector % num_heads) * head_dim;
  }
};

// The positions that one standing at `position` sees.
inline IndexRange Visible(int position, int window) {
  const int begin = window > 0 && position >= window ? position - window + 1 : 0;
  return {begin, position + 1};
}

// The lanes of the tile at `first` that a vector sees; empty ones have begin >= end.
inline IndexRange VisibleLanes(const AttendState& s, int vector, int first) {
  const IndexRange visible = Visible(s.position(vector), s.task->window);
  return {visible.begin > first ? visible.begin - first : 0,
          visible.end - first < kAttendTile ? visible.end - first : kAttendTile};
}

// ---- Where a tile is ----

// The block of words of the unit's head in the page that holds `position`.
inline int64_t BlockOf(const AttendState& s, int position) {
  const PagedKvView& kv = s.task->kv;
  const int64_t page = kv.page_tables[static_cast<int64_t>(s.unit->sequence) * kv.max_pages +
                                      position / kv.page_size];
  return 4 * (page * kv.page_stride + s.unit->kv_head * kv.head_words());
}

// REQUIRES: page_size % kLanes == 0, so that 16 positions share a page.
template <class Kv>
void FindTile(const AttendState& s, int first, Tile* tile) {
  const PagedKvView& kv = s.task->kv;
  const int words = KvElementWords(Kv::kDType, s.head_dim);
  for (int h = 0; h < kHalves; ++h) {
    const int position = first + h * kLanes;
    HalfTile& half = tile->halves[h];
    half.keys = half.values = reinterpret_cast<const std::byte*>(s.zeros);
    half.key_stride = half.value_stride = 0;
    if (position >= s.visible.end || position + kLanes <= s.visible.begin) continue;
    const int64_t block = BlockOf(s, position);
    const int place = position % kv.page_size;
    half.key_stride = int64_t{4} * kv.page_size;
    half.value_stride = int64_t{4} * words;
    half.keys = static_cast<const std::byte*>(kv.keys) + block + 4 * place;
    half.values = static_cast<const std::byte*>(kv.values) + block + place * half.value_stride;
  }
}

// The scales of visible positions; those of others may be anything.
inline void GatherScales(const AttendState& s, const void* cache, int first, float* scales) {
  const PagedKvView& kv = s.task->kv;
  const int64_t skipped = int64_t{4} * kv.page_size * KvElementWords(kv.dtype, kv.head_dim);
  for (int lane = 0; lane < kAttendTile;) {
    const int position = first + lane;
    const int place = position % kv.page_size;
    int count = kv.page_size - place;
    if (count > kAttendTile - lane) count = kAttendTile - lane;
    if (position < s.visible.end && position + count > s.visible.begin) {
      __builtin_memcpy(scales + lane,
                       static_cast<const std::byte*>(cache) + BlockOf(s, position) + skipped +
                           int64_t{4} * place,
                       static_cast<size_t>(count) * sizeof(float));
    }
    lane += count;
  }
}

// Has `tile` fetched in the steps of computing another: one for each word of keys and for each
// position and slice of values, of each group of vectors.
template <class Kv>
void FetchMeanwhile(const AttendState& s, const Tile& tile) {
  Fetcher& fetcher = *s.fetcher;
  const int words = KvElementWords(Kv::kDType, s.head_dim);
  int count = 0;
  for (int h = 0; h < kHalves; ++h) {
    const HalfTile& half = tile.halves[h];
    if (half.key_stride == 0) continue;
    for (int w = 0; w < words; ++w) fetcher.lines[count++] = half.keys + w * half.key_stride;
  }
  for (int h = 0; h < kHalves; ++h) {
    const HalfTile& half = tile.halves[h];
    if (half.key_stride == 0) continue;
    for (int w = 0; w < words; ++w) fetcher.lines[count++] = half.values + w * 64;
  }
  const int groups = (s.num_vectors + kScoreRows - 1) / kScoreRows;
  const int slices = (s.head_dim + kMixVectors * kLanes - 1) / (kMixVectors * kLanes);
  const int steps = groups * (words + slices * kAttendTile);
  fetcher.next = 0;
  fetcher.end = count;
  fetcher.per_step = (count + steps - 1) / steps;
}

// Sets key_scales and value_scales.
template <class Kv>
void FindScales(const AttendState& s, int first) {
  const Floats scale = Splat(s.task->scale);
  if constexpr (Kv::kDType == KvDType::kInt8) {
    GatherScales(s, s.task->kv.keys, first, s.key_scales);
    GatherScales(s, s.task->kv.values, first, s.value_scales);
    for (int v = 0; v < kAttendTile; v += kLanes) {
      Store(s.key_scales + v, Mul(Load(s.key_scales + v), scale));
    }
  } else {
    for (int v = 0; v < kAttendTile; v += kLanes) Store(s.key_scales + v, scale);
  }
}

// ---- Keys and values as f32, for many vectors and for pages that 16 positions do not share ----

inline void UseWideTile(const AttendState& s, Tile* tile) {
  for (int h = 0; h < kHalves; ++h) {
    tile->halves[h] = {
        .keys = reinterpret_cast<const std::byte*>(s.wide_keys + h * kLanes),
        .values = reinterpret_cast<const std::byte*>(s.wide_values + h * kLanes * s.padded_dim),
        .key_stride = int64_t{4} * kAttendTile,
        .value_stride = int64_t{4} * s.padded_dim};
  }
}

template <class Kv>
void WidenValue(const AttendState& s, const std::byte* elements, int lane) {
  float* wide = s.wide_values + static_cast<int64_t>(lane) * s.padded_dim;
  for (int d = 0; d < s.head_dim; d += kLanes) {
    const int count = s.head_dim - d < kLanes ? s.head_dim - d : kLanes;
    Store(wide + d, WidenPart<Kv>(elements + d * (4 / Kv::kPerWord), count));
  }
}

template <class Kv>
void WidenTile(const AttendState& s, const Tile& tile) {
  for (int h = 0; h < kHalves; ++h) {
    const HalfTile& half = tile.halves[h];
    float* wide = s.wide_keys + h * kLanes;
    const std::byte* words = half.keys;
    for (int d = 0; d < s.head_dim; words += half.key_stride) {
#pragma GCC unroll 4
      for (int j = 0; j < Kv::kPerWord; ++j) {
        if (d + j < s.head_dim) Store(wide + (d + j) * kAttendTile, Kv::Part(words, j));
      }
      d += Kv::kPerWord;
    }
    for (int i = 0; i < kLanes; ++i) {
      WidenValue<Kv>(s, half.values + i * half.value_stride, h * kLanes + i);
    }
  }
}

// Position by position; zeros where the unit sees none.
template <class Kv>
void GatherTile(const AttendState& s, int first) {
  const PagedKvView& kv = s.task->kv;
  constexpr int kBytes = 4 / Kv::kPerWord;
  const int64_t key_stride = int64_t{4} * kv.page_size;
  const int64_t value_stride = int64_t{4} * KvElementWords(Kv::kDType, s.head_dim);
  for (int lane = 0; lane < kAttendTile; ++lane) {
    const int position = first + lane;
    float* wide = s.wide_keys + lane;
    if (position < s.visible.begin || position >= s.visible.end) {
      for (int d = 0; d < s.head_dim; ++d) wide[d * kAttendTile] = 0.0f;
      WidenValue<F32Kv>(s, reinterpret_cast<const std::byte*>(s.zeros), lane);
      continue;
    }
    const int64_t block = BlockOf(s, position);
    const int place = position % kv.page_size;
    const std::byte* key = static_cast<const std::byte*>(kv.keys) + block + 4 * place;
    for (int d = 0; d < s.head_dim; ++d) {
      const std::byte* word = key + d / Kv::kPerWord * key_stride;
      wide[d * kAttendTile] = Kv::Element(word + d % Kv::kPerWord * kBytes);
    }
    WidenValue<Kv>(s, static_cast<const std::byte*>(kv.values) + block + place * value_stride,
                   lane);
  }
}

// The same as the cache's words, for formats that are not widened.
template <class Kv>
void GatherWords(const AttendState& s, int first, Tile* tile) {
  const PagedKvView& kv = s.task->kv;
  const int words = KvElementWords(Kv::kDType, s.head_dim);
  const int64_t key_stride = int64_t{4} * kv.page_size;
  const int64_t value_bytes = int64_t{4} * words;
  auto* keys = reinterpret_cast<std::byte*>(s.wide_keys);
  auto* values = reinterpret_cast<std::byte*>(s.wide_values);
  for (int h = 0; h < kHalves; ++h) {
    tile->halves[h] = {.keys = keys + 4 * h * kLanes,
                       .values = values + h * kLanes * value_bytes,
                       .key_stride = int64_t{4} * kAttendTile,
                       .value_stride = value_bytes};
  }
  for (int lane = 0; lane < kAttendTile; ++lane) {
    const int position = first + lane;
    const bool seen = position >= s.visible.begin && position < s.visible.end;
    const int64_t block = seen ? BlockOf(s, position) : 0;
    const int place = position % kv.page_size;
    const std::byte* key = seen ? static_cast<const std::byte*>(kv.keys) + block + 4 * place
                                : reinterpret_cast<const std::byte*>(s.zeros);
    const std::byte* value =
        seen ? static_cast<const std::byte*>(kv.values) + block + place * value_bytes
             : reinterpret_cast<const std::byte*>(s.zeros);
    for (int w = 0; w < words; ++w) {
      __builtin_memcpy(keys + 4 * (w * kAttendTile + lane), key + (seen ? w * key_stride : 0), 4);
    }
    __builtin_memcpy(values + lane * value_bytes, value, static_cast<size_t>(value_bytes));
  }
}

// ---- Scores ----

template <class Kv, int kVectors>
void ScoreGroup(const AttendState& s, const Tile& tile, int first_vector) {
  const std::byte* keys[kHalves];
  Floats sum[kVectors][kHalves];
#pragma GCC unroll 2
  for (int h = 0; h < kHalves; ++h) keys[h] = tile.halves[h].keys;
#pragma GCC unroll 8
  for (int r = 0; r < kVectors; ++r) {
#pragma GCC unroll 2
    for (int h = 0; h < kHalves; ++h) sum[r][h] = Zero();
  }
  const float* query = s.queries + static_cast<int64_t>(first_vector) * s.head_dim;
  Fetcher fetcher = *s.fetcher;
  for (int d = 0; d < s.head_dim;) {
    fetcher.Step();
#pragma GCC unroll 4
    for (int j = 0; j < Kv::kParts; ++j, d += Kv::kPerWord / Kv::kParts) {
      if (Kv::kParts > 1 && d >= s.head_dim) break;
      typename Kv::Elements key[kHalves];
#pragma GCC unroll 2
      for (int h = 0; h < kHalves; ++h) key[h] = Kv::Part(keys[h], j);
#pragma GCC unroll 8
      for (int r = 0; r < kVectors; ++r) {
        const typename Kv::Elements x = Kv::SplatFactor(query + r);
#pragma GCC unroll 2
        for (int h = 0; h < kHalves; ++h) sum[r][h] = Kv::Accumulate(sum[r][h], key[h], x);
      }
      query += kVectors;
    }
#pragma GCC unroll 2
    for (int h = 0; h < kHalves; ++h) keys[h] += tile.halves[h].key_stride;
  }
  *s.fetcher = fetcher;
#pragma GCC unroll 8
  for (int r = 0; r < kVectors; ++r) {
#pragma GCC unroll 2
    for (int h = 0; h < kHalves; ++h) {
      Store(s.scores + (first_vector + r) * kAttendTile + h * kLanes, sum[r][h]);
    }
  }
}

template <class Kv, int kVectors>
void ScoreRemainder(const AttendState& s, const Tile& tile, int first_vector, int count) {
  if (count == kVectors) return ScoreGroup<Kv, kVectors>(s, tile, first_vector);
  if constexpr (kVectors > 1) ScoreRemainder<Kv, kVectors - 1>(s, tile, first_vector, count);
}

template <class Kv>
void ScoreTile(const AttendState& s, const Tile& tile) {
  int vector = 0;
  for (; vector + kScoreRows <= s.num_vectors; vector += kScoreRows) {
    ScoreGroup<Kv, kScoreRows>(s, tile, vector);
  }
  const int rest = s.num_vectors - vector;
  if (rest > 0) ScoreRemainder<Kv, kScoreRows>(s, tile, vector, rest);
}

// Lays the unit's queries out as ScoreGroup reads them.
template <class Kv>
void PackQueries(const AttendState& s) {
  constexpr int kStep = Kv::kPerWord / Kv::kParts;  // elements that a factor is made of
  float* packed = s.queries;
  for (int first = 0; first < s.num_vectors; first += kScoreRows) {
    const int count = s.num_vectors - first < kScoreRows ? s.num_vectors - first : kScoreRows;
    for (int r = 0; r < count; ++r) {
      const float* query =
          s.task->queries + s.row(first + r) * s.task->query_stride + s.column(first + r);
      for (int d = 0; d < s.head_dim; d += kStep) {
        const float next = kStep > 1 && d + 1 < s.head_dim ? query[d + 1] : 0.0f;
        packed[d / kStep * count + r] = Kv::Factor(query[d], next);
      }
    }
    packed += count * s.head_dim;
  }
}

// ---- Softmax ----

// Scores become exponentials of what they are above a reference. Sums follow a new reference only
// when a score exceeds it by more than this, and weights are up to e^8: nearly always the largest
// score of a chunk's first tile will do, and branches are foreseen.
inline constexpr float kReferenceSlack = 8.0f;

template <class Kv>
void SoftmaxTile(const AttendState& s, int vector, IndexRange lanes) {
  float* scores = s.scores + vector * kAttendTile;
  const Floats hidden = Splat(-__builtin_inff());
  Floats score[kHalves];
  const float before = s.references[vector];
  Floats most = Splat(before);
  for (int v = 0; v < kHalves; ++v) {
    score[v] = Mul(Load(scores + v * kLanes), Load(s.key_scales + v * kLanes));
    if (lanes.begin > 0 || lanes.end < kAttendTile) {
      const int begin = lanes.begin - v * kLanes;
      const int end = lanes.end - v * kLanes;
      score[v] = KeepLanes(score[v],
                           begin < 0        ? 0
                           : begin < kLanes ? begin
                                            : kLanes,
                           end < 0        ? 0
                           : end < kLanes ? end
                                          : kLanes,
                           hidden);
    }
    most = Max(score[v], most);
  }
  const float largest = Largest(most);
  float* sums = s.sums + static_cast<int64_t>(vector) * s.sum_stride;
  float* totals = sums + s.padded_dim;
  float reference = before;
  if (largest > before + kReferenceSlack) {  // at first, when the sums are zeros, -infinity
    const Floats shrink = Exp(Splat(before - largest));
    for (int d = 0; d < s.sum_stride; d += kLanes) Store(sums + d, Mul(Load(sums + d), shrink));
    s.references[vector] = reference = largest;
  }
  Floats total = Load(totals);
  for (int v = 0; v < kHalves; ++v) {
    score[v] = Exp(Sub(score[v], Splat(reference)));
    total = Add(total, score[v]);
    if constexpr (Kv::kDType == KvDType::kInt8) {
      score[v] = Mul(score[v], Load(s.value_scales + v * kLanes));
    }
  }
  Kv::StoreWeights(scores, score);
  Store(totals, total);
}

// ---- Sums of values ----

// sums += exponentials times values of lanes [lanes), for kVectors vectors and kWide * 16
// dimensions from `d`, the last of them perhaps `count` instead of 16.
template <class Kv, int kVectors, int kWide, bool kPart>
void MixGroup(const AttendState& s, const Tile& tile, int first_vector, IndexRange lanes, int d,
              int count) {
  constexpr int kBytes = 4 / Kv::kPerWord;
  float* sums = s.sums + static_cast<int64_t>(first_vector) * s.sum_stride + d;
  const float* weights = s.scores + first_vector * kAttendTile;
  Floats sum[kVectors][kWide];
#pragma GCC unroll 8
  for (int r = 0; r < kVectors; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kWide; ++v) sum[r][v] = Load(sums + r * s.sum_stride + v * kLanes);
  }
  Fetcher fetcher = *s.fetcher;
  for (int h = 0; h < kHalves; ++h) {
    const HalfTile& half = tile.halves[h];
    const int begin = lanes.begin > h * kLanes ? lanes.begin : h * kLanes;
    const int end = lanes.end < (h + 1) * kLanes ? lanes.end : (h + 1) * kLanes;
    const int first = begin / Kv::kPositions * Kv::kPositions;
    const std::byte* values = half.values + (first - h * kLanes) * half.value_stride + d * kBytes;
    for (int lane = first; lane < end;
         lane += Kv::kPositions, values += Kv::kPositions * half.value_stride) {
      fetcher.Step();
      typename Kv::Elements value[kWide];
#pragma GCC unroll 4
      for (int v = 0; v < kWide; ++v) {
        value[v] = Kv::template Values<kPart>(values + v * kLanes * kBytes, half.value_stride,
                                              {begin - lane, end - lane},
                                              kPart && v == kWide - 1 ? count : kLanes);
      }
#pragma GCC unroll 8
      for (int r = 0; r < kVectors; ++r) {
        const typename Kv::Elements weight =
            Kv::SplatFactor(weights + r * kAttendTile + lane / Kv::kPositions);
#pragma GCC unroll 4
        for (int v = 0; v < kWide; ++v) sum[r][v] = Kv::Accumulate(sum[r][v], value[v], weight);
      }
    }
  }
  *s.fetcher = fetcher;
#pragma GCC unroll 8
  for (int r = 0; r < kVectors; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kWide; ++v) Store(sums + r * s.sum_stride + v * kLanes, sum[r][v]);
  }
}

template <class Kv, int kVectors>
void MixAllDimensions(const AttendState& s, const Tile& tile, int first_vector, IndexRange lanes) {
  int d = 0;
  for (; d + kMixVectors * kLanes <= s.head_dim; d += kMixVectors * kLanes) {
    MixGroup<Kv, kVectors, kMixVectors, false>(s, tile, first_vector, lanes, d, kLanes);
  }
  for (; d + kLanes <= s.head_dim; d += kLanes) {
    MixGroup<Kv, kVectors, 1, false>(s, tile, first_vector, lanes, d, kLanes);
  }
  if (d < s.head_dim) {
    MixGroup<Kv, kVectors, 1, true>(s, tile, first_vector, lanes, d, s.head_dim - d);
  }
}

// Vectors see nearly the same lanes: together those that all see, one by one the rest before and
// after, so that each adds its own lanes in increasing order.
template <class Kv, int kVectors>
void MixVectors(const AttendState& s, const Tile& tile, int vector, int first) {
  if constexpr (kVectors == 1) {
    MixAllDimensions<Kv, 1>(s, tile, vector, VisibleLanes(s, vector, first));
  } else {
    IndexRange common{0, kAttendTile};
    for (int r = 0; r < kVectors; ++r) {
      const IndexRange lanes = VisibleLanes(s, vector + r, first);
      if (lanes.begin > common.begin) common.begin = lanes.begin;
      if (lanes.end < common.end) common.end = lanes.end;
    }
    common.begin = (common.begin + Kv::kPositions - 1) / Kv::kPositions * Kv::kPositions;
    common.end = common.end / Kv::kPositions * Kv::kPositions;
    if (common.begin >= common.end) {
      for (int r = 0; r < kVectors; ++r) MixVectors<Kv, 1>(s, tile, vector + r, first);
      return;
    }
    for (int r = 0; r < kVectors; ++r) {
      const IndexRange lanes = VisibleLanes(s, vector + r, first);
      if (lanes.begin < common.begin)
        MixAllDimensions<Kv, 1>(s, tile, vector + r, {lanes.begin, common.begin});
    }
    MixAllDimensions<Kv, kVectors>(s, tile, vector, common);
    for (int r = 0; r < kVectors; ++r) {
      const IndexRange lanes = VisibleLanes(s, vector + r, first);
      if (common.end < lanes.end)
        MixAllDimensions<Kv, 1>(s, tile, vector + r, {common.end, lanes.end});
    }
  }
}

template <class Kv, int kVectors>
void MixRemainder(const AttendState& s, const Tile& tile, int vector, int count, int first) {
  if (count == kVectors) return MixVectors<Kv, kVectors>(s, tile, vector, first);
  if constexpr (kVectors > 1) MixRemainder<Kv, kVectors - 1>(s, tile, vector, count, first);
}

template <class Kv>
void MixTile(const AttendState& s, const Tile& tile, int first) {
  int vector = 0;
  for (; vector + kMixRows <= s.num_vectors; vector += kMixRows) {
    MixVectors<Kv, kMixRows>(s, tile, vector, first);
  }
  if (vector < s.num_vectors) {
    MixRemainder<Kv, kMixRows>(s, tile, vector, s.num_vectors - vector, first);
  }
}

// ---- Chunks ----

inline AttendState MakeAttendState(const AttendTask& task, const AttendUnit& unit, float* scratch) {
  AttendState s;
  s.task = &task;
  s.unit = &unit;
  s.num_heads = task.heads_per_kv_head;
  s.num_vectors = unit.num_vectors(task.heads_per_kv_head);
  s.head_dim = task.kv.head_dim;
  s.padded_dim = static_cast<int>(AttendPaddedDim(s.head_dim));
  s.sum_stride = static_cast<int>(AttendSumStride(s.head_dim));
  s.visible = {Visible(s.position(0), task.window).begin, s.position(s.num_vectors - 1) + 1};
  s.sums = s.references = nullptr;
  s.fetcher = nullptr;
  s.zeros = scratch;
  s.key_scales = s.zeros + s.padded_dim;
  s.value_scales = s.key_scales + kAttendTile;
  s.wide_keys = s.value_scales + kAttendTile;
  s.wide_values = s.wide_keys + s.padded_dim * kAttendTile;
  s.scores = s.wide_values + s.padded_dim * kAttendTile;
  s.queries = s.scores + static_cast<int64_t>(s.num_vectors) * kAttendTile;
  for (int i = 0; i < s.padded_dim; ++i) s.zeros[i] = 0.0f;
  return s;
}

inline void UseSums(AttendState& s, float* state) {
  s.sums = state;
  s.references = state + static_cast<int64_t>(s.num_vectors) * s.sum_stride;
}

// `tile` holds what the cache does, of format Kv, as Read.
template <class Kv, class Read>
void AttendTile(const AttendState& s, int first, const Tile& tile) {
  FindScales<Kv>(s, first);
  ScoreTile<Read>(s, tile);
  for (int vector = 0; vector < s.num_vectors; ++vector) {
    const IndexRange lanes = VisibleLanes(s, vector, first);
    if (lanes.begin < lanes.end) SoftmaxTile<Kv>(s, vector, lanes);
  }
  MixTile<Read>(s, tile, first);
}

// The softmax of positions [first, end) by themselves, into s.sums and s.references.
template <class Kv>
void AttendChunk(const AttendState& s, int first, int end) {
  for (int64_t i = 0; i < static_cast<int64_t>(s.num_vectors) * s.sum_stride; ++i) s.sums[i] = 0.0f;
  for (int i = 0; i < s.num_vectors; ++i) s.references[i] = -__builtin_inff();
  if (first < s.visible.begin) first = s.visible.begin / kAttendTile * kAttendTile;
  if (s.task->kv.page_size % kLanes != 0) {
    for (; first < end; first += kAttendTile) {
      Tile gathered;
      if constexpr (Kv::kWidens) {
        GatherTile<Kv>(s, first);
        UseWideTile(s, &gathered);
        AttendTile<Kv, F32Kv>(s, first, gathered);
      } else {
        GatherWords<Kv>(s, first, &gathered);
        AttendTile<Kv, Kv>(s, first, gathered);
      }
    }
    return;
  }
  const bool widens = Kv::kWidens && Kv::kPerWord > 1 && s.num_vectors > kScoreRows;
  Tile tiles[2];  // the one whose turn it is and the one after it
  int turn = 0;
  FindTile<Kv>(s, first, &tiles[turn]);
  for (; first < end; first += kAttendTile) {
    const Tile& tile = tiles[turn];
    turn = 1 - turn;
    FindTile<Kv>(s, first + kAttendTile, &tiles[turn]);
    FetchMeanwhile<Kv>(s, tiles[turn]);
    if constexpr (Kv::kWidens) {
      if (widens) {
        Tile wide;
        WidenTile<Kv>(s, tile);
        UseWideTile(s, &wide);
        AttendTile<Kv, F32Kv>(s, first, wide);
        continue;
      }
    }
    AttendTile<Kv, Kv>(s, first, tile);
  }
}

// Whether a vector sees a position of chunk `chunk`, and whether one before it.
inline bool SeesChunk(const AttendState& s, int vector, int chunk) {
  const IndexRange visible = Visible(s.position(vector), s.task->window);
  return visible.begin < (chunk + 1) * kAttendChunk && visible.end > chunk * kAttendChunk;
}
inline bool SeesBeforeChunk(const AttendState& s, int vector, int chunk) {
  return Visible(s.position(vector), s.task->window).begin < chunk * kAttendChunk;
}

// Adds what a chunk found to what the chunks before it found.
//   merged, state: as s.sums with s.references behind them
inline void MergeChunk(const AttendState& s, int chunk, const float* state, float* merged) {
  const int64_t num_sums = static_cast<int64_t>(s.num_vectors) * s.sum_stride;
  for (int vector = 0; vector < s.num_vectors; ++vector) {
    if (!SeesChunk(s, vector, chunk)) continue;
    const float* from = state + static_cast<int64_t>(vector) * s.sum_stride;
    float* to = merged + static_cast<int64_t>(vector) * s.sum_stride;
    const float added = state[num_sums + vector];
    float& reference = merged[num_sums + vector];
    if (!SeesBeforeChunk(s, vector, chunk)) {
      for (int d = 0; d < s.sum_stride; d += kLanes) Store(to + d, Load(from + d));
      reference = added;
      continue;
    }
    const float before = reference;
    reference = before > added ? before : added;
    const Floats old_factor = Exp(Splat(before - reference));
    const Floats new_factor = Exp(Splat(added - reference));
    for (int d = 0; d < s.sum_stride; d += kLanes) {
      Store(to + d, MulAdd(Load(from + d), new_factor, Mul(Load(to + d), old_factor)));
    }
  }
}

inline void WriteOut(const AttendState& s, const float* state) {
  for (int vector = 0; vector < s.num_vectors; ++vector) {
    float* out = s.task->out + s.row(vector) * s.task->out_stride + s.column(vector);
    const float* sums = state + static_cast<int64_t>(vector) * s.sum_stride;
    const Floats total = Splat(Sum(Load(sums + s.padded_dim)));
    for (int d = 0; d < s.head_dim; d += kLanes) {
      const int count = s.head_dim - d < kLanes ? s.head_dim - d : kLanes;
      StorePart(out + d, Div(Load(sums + d), total), count);
    }
  }
}

template <class Kv>
void AttendOf(const AttendTask& task, const AttendUnit& unit, float* scratch) {
  const size_t state_floats =
      AttendStateFloats(unit.num_vectors(task.heads_per_kv_head), task.kv.head_dim);
  float* const own_state = scratch;
  float* const merged = scratch + state_floats;
  AttendState s = MakeAttendState(task, unit, scratch + 2 * state_floats);
  const int64_t num_query_floats = static_cast<int64_t>(s.num_vectors) * s.padded_dim;
  Fetcher fetcher = {.lines = reinterpret_cast<const std::byte**>(s.queries + num_query_floats),
                     .next = 0,
                     .end = 0,
                     .per_step = 0};
  s.fetcher = &fetcher;
  PackQueries<Kv>(s);
  const int num_chunks = unit.chunks.end - unit.chunks.begin;
  for (int i = 0; i < num_chunks; ++i) {
    const int chunk = unit.chunks.begin + i;
    const int end = (chunk + 1) * kAttendChunk;
    UseSums(s, unit.states != nullptr ? unit.states + i * state_floats : own_state);
    AttendChunk<Kv>(s, chunk * kAttendChunk, end < s.visible.end ? end : s.visible.end);
    if (unit.states == nullptr && num_chunks > 1) MergeChunk(s, chunk, own_state, merged);
  }
  if (unit.states == nullptr) WriteOut(s, num_chunks > 1 ? merged : own_state);
}

inline void MergeChunks(const AttendTask& task, const AttendUnit& unit, float* scratch) {
  const size_t state_floats =
      AttendStateFloats(unit.num_vectors(task.heads_per_kv_head), task.kv.head_dim);
  float* const merged = scratch;
  AttendState s = MakeAttendState(task, unit, scratch + 2 * state_floats);
  UseSums(s, merged);
  for (int chunk = unit.chunks.begin; chunk < unit.chunks.end; ++chunk) {
    MergeChunk(s, chunk, unit.states + (chunk - unit.chunks.begin) * state_floats, merged);
  }
  WriteOut(s, merged);
}

}  // namespace
}  // namespace tandem

#endif  // TANDEM_KERNELS_CPU_ATTENTION_KERNELS_H_
