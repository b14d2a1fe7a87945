// Attention of one unit over the paged cache; include after a simd_*.h.
//
// A query vector is one (row, head). Its softmax runs online over tiles of kAttendTile absolute
// positions in increasing order. Scores have lanes over positions and one chain over the head's
// dimensions, mixes of values lanes over dimensions and one chain over the visible positions, so a
// vector's bits do not depend on the other vectors of the unit. Lanes that it may not see are
// replaced before the softmax and left out after it, never multiplied by zero: the cache may hold
// NaN there.
#ifndef TANDEM_KERNELS_CPU_ATTENTION_KERNELS_H_
#define TANDEM_KERNELS_CPU_ATTENTION_KERNELS_H_

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/exponential.h"

namespace tandem {
namespace {

inline constexpr int kTileVectors = kAttendTile / kLanes;

// Where the keys and values of a tile's positions are; zeros in place of those the unit never sees.
struct TileRows {
  const float* keys[kAttendTile];
  const float* values[kAttendTile];
};

// What a unit works on: `num_vectors` vectors, those of a row next to each other.
struct AttendState {
  const AttendTask* task;
  const AttendUnit* unit;
  int num_heads;  // of the unit
  int num_vectors;
  int head_dim;
  int padded_dim;

  float* transposed_keys;  // [head_dim, kAttendTile]
  float* zeros;            // [padded_dim]
  float* sums;             // [num_vectors, padded_dim]: weighted values so far
  float* scores;           // [num_vectors, kAttendTile]: of this tile, then their exponentials
  float* largest;          // [num_vectors]: score so far
  float* totals;           // [num_vectors]: of exponentials so far

  int row(int vector) const { return unit->rows.begin + vector / num_heads; }
  int position(int vector) const { return unit->first_position + vector / num_heads; }
  int64_t column(int vector) const {
    return static_cast<int64_t>(unit->heads.begin + vector % num_heads) * head_dim;
  }
  const float* query(int vector) const {
    return task->queries + row(vector) * task->query_stride + column(vector);
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

inline void FindTile(const AttendState& s, IndexRange visible, int first, TileRows* tile) {
  const PagedKvView& kv = s.task->kv;
  const int32_t* page =
      kv.page_tables + static_cast<int64_t>(s.unit->sequence) * kv.max_pages + first / kv.page_size;
  int place = first % kv.page_size;  // in the page
  for (int lane = 0; lane < kAttendTile; ++lane) {
    const int position = first + lane;
    tile->keys[lane] = tile->values[lane] = s.zeros;
    if (visible.begin <= position && position < visible.end) {
      const int slot = s.unit->kv_head * kv.page_size + place;
      const int64_t offset = *page * kv.page_stride + static_cast<int64_t>(slot) * kv.head_dim;
      tile->keys[lane] = static_cast<const float*>(kv.keys) + offset;
      tile->values[lane] = static_cast<const float*>(kv.values) + offset;
    }
    if (++place == kv.page_size) {
      place = 0;
      ++page;
    }
  }
}

// Fetches the next tile meanwhile, line by line: pages are too short for the hardware to follow,
// and fetching all of it at once gains nothing (keys and values from memory at 18, so at 30 GB/s).
inline void TransposeKeys(const AttendState& s, const TileRows& tile, const TileRows& next) {
  for (int lane = 0; lane < kAttendTile; lane += kLanes) {
    for (int d = 0; d < s.head_dim; d += kLanes) {
      for (int i = 0; i < kLanes; ++i) {
        FetchFar(next.keys[lane + i] + d);
        FetchFar(next.values[lane + i] + d);
      }
      const int count = s.head_dim - d < kLanes ? s.head_dim - d : kLanes;
      Transpose(tile.keys + lane, d, count, s.transposed_keys + d * kAttendTile + lane,
                kAttendTile);
    }
  }
}

template <int kVectors>
void ScoreGroup(const AttendState& s, int first_vector) {
  const float* query[kVectors];
  Floats sum[kVectors][kTileVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kVectors; ++r) {
    query[r] = s.query(first_vector + r);
#pragma GCC unroll 2
    for (int v = 0; v < kTileVectors; ++v) sum[r][v] = Zero();
  }
  const float* keys = s.transposed_keys;
  for (int d = 0; d < s.head_dim; ++d, keys += kAttendTile) {
    Floats key[kTileVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kTileVectors; ++v) key[v] = Load(keys + v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kVectors; ++r) {
      const Floats x = Splat(query[r][d]);
#pragma GCC unroll 2
      for (int v = 0; v < kTileVectors; ++v) sum[r][v] = MulAdd(key[v], x, sum[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kVectors; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kTileVectors; ++v) {
      Store(s.scores + (first_vector + r) * kAttendTile + v * kLanes, sum[r][v]);
    }
  }
}

template <int kVectors>
void ScoreRemainder(const AttendState& s, int first_vector, int count) {
  if (count == kVectors) return ScoreGroup<kVectors>(s, first_vector);
  if constexpr (kVectors > 1) ScoreRemainder<kVectors - 1>(s, first_vector, count);
}

inline void ScoreTile(const AttendState& s) {
  int vector = 0;
  for (; vector + kScoreRows <= s.num_vectors; vector += kScoreRows) {
    ScoreGroup<kScoreRows>(s, vector);
  }
  if (vector < s.num_vectors) ScoreRemainder<kScoreRows>(s, vector, s.num_vectors - vector);
}

// Scores become exponentials below the largest so far, and the sums follow a new largest.
inline void SoftmaxTile(AttendState& s, int vector, IndexRange lanes) {
  float* scores = s.scores + vector * kAttendTile;
  const Floats scale = Splat(s.task->scale);
  const Floats hidden = Splat(-__builtin_inff());
  Floats score[kTileVectors];
  const float before = s.largest[vector];
  Floats most = Splat(before);
  for (int v = 0; v < kTileVectors; ++v) {
    const int begin = lanes.begin - v * kLanes;
    const int end = lanes.end - v * kLanes;
    score[v] = KeepLanes(Mul(Load(scores + v * kLanes), scale),
                         begin < 0        ? 0
                         : begin < kLanes ? begin
                                          : kLanes,
                         end < 0        ? 0
                         : end < kLanes ? end
                                        : kLanes,
                         hidden);
    most = Max(score[v], most);
  }
  const float largest = Largest(most);
  Floats total = Zero();
  for (int v = 0; v < kTileVectors; ++v) {
    score[v] = Exp(Sub(score[v], Splat(largest)));
    Store(scores + v * kLanes, score[v]);
    total = Add(total, score[v]);
  }
  if (largest == before) {  // as if multiplied by one
    s.totals[vector] += Sum(total);
    return;
  }
  // 0 at first, when the largest was -infinity and the sums are zeros.
  const Floats shrink = Exp(Splat(before - largest));
  float first_lane[kLanes];
  Store(first_lane, shrink);
  s.totals[vector] = s.totals[vector] * first_lane[0] + Sum(total);
  s.largest[vector] = largest;
  float* sums = s.sums + static_cast<int64_t>(vector) * s.padded_dim;
  for (int d = 0; d < s.padded_dim; d += kLanes) Store(sums + d, Mul(Load(sums + d), shrink));
}

// sums += exponentials times values of lanes [lanes), for kVectors vectors and kWide * 16
// dimensions from `d`, the last of them perhaps `count` instead of 16.
template <int kVectors, int kWide, bool kPart>
void MixGroup(const AttendState& s, const TileRows& tile, int first_vector, IndexRange lanes, int d,
              int count) {
  float* sums = s.sums + static_cast<int64_t>(first_vector) * s.padded_dim + d;
  const float* weights = s.scores + first_vector * kAttendTile;
  Floats sum[kVectors][kWide];
#pragma GCC unroll 8
  for (int r = 0; r < kVectors; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kWide; ++v) sum[r][v] = Load(sums + r * s.padded_dim + v * kLanes);
  }
  for (int lane = lanes.begin; lane < lanes.end; ++lane) {
    const float* values = tile.values[lane] + d;
    Floats value[kWide];
#pragma GCC unroll 4
    for (int v = 0; v < kWide; ++v) {
      value[v] = kPart && v == kWide - 1 ? LoadPart(values + v * kLanes, count)
                                         : Load(values + v * kLanes);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kVectors; ++r) {
      const Floats weight = Splat(weights[r * kAttendTile + lane]);
#pragma GCC unroll 4
      for (int v = 0; v < kWide; ++v) sum[r][v] = MulAdd(value[v], weight, sum[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kVectors; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kWide; ++v) Store(sums + r * s.padded_dim + v * kLanes, sum[r][v]);
  }
}

template <int kVectors>
void MixAllDimensions(const AttendState& s, const TileRows& tile, int first_vector,
                      IndexRange lanes) {
  int d = 0;
  for (; d + kMixVectors * kLanes <= s.head_dim; d += kMixVectors * kLanes) {
    MixGroup<kVectors, kMixVectors, false>(s, tile, first_vector, lanes, d, kLanes);
  }
  for (; d + kLanes <= s.head_dim; d += kLanes) {
    MixGroup<kVectors, 1, false>(s, tile, first_vector, lanes, d, kLanes);
  }
  if (d < s.head_dim) MixGroup<kVectors, 1, true>(s, tile, first_vector, lanes, d, s.head_dim - d);
}

// Vectors see nearly the same lanes: together those that all see, one by one the rest before and
// after, so that each adds its own lanes in increasing order.
template <int kVectors>
void MixVectors(const AttendState& s, const TileRows& tile, int vector, int first) {
  if constexpr (kVectors == 1) {
    MixAllDimensions<1>(s, tile, vector, VisibleLanes(s, vector, first));
  } else {
    IndexRange common{0, kAttendTile};
    for (int r = 0; r < kVectors; ++r) {
      const IndexRange lanes = VisibleLanes(s, vector + r, first);
      if (lanes.begin > common.begin) common.begin = lanes.begin;
      if (lanes.end < common.end) common.end = lanes.end;
    }
    if (common.begin >= common.end) {
      for (int r = 0; r < kVectors; ++r) MixVectors<1>(s, tile, vector + r, first);
      return;
    }
    for (int r = 0; r < kVectors; ++r) {
      const IndexRange lanes = VisibleLanes(s, vector + r, first);
      if (lanes.begin < common.begin)
        MixAllDimensions<1>(s, tile, vector + r, {lanes.begin, common.begin});
    }
    MixAllDimensions<kVectors>(s, tile, vector, common);
    for (int r = 0; r < kVectors; ++r) {
      const IndexRange lanes = VisibleLanes(s, vector + r, first);
      if (common.end < lanes.end) MixAllDimensions<1>(s, tile, vector + r, {common.end, lanes.end});
    }
  }
}

template <int kVectors>
void MixRemainder(const AttendState& s, const TileRows& tile, int vector, int count, int first) {
  if (count == kVectors) return MixVectors<kVectors>(s, tile, vector, first);
  if constexpr (kVectors > 1) MixRemainder<kVectors - 1>(s, tile, vector, count, first);
}

inline void MixTile(const AttendState& s, const TileRows& tile, int first) {
  int vector = 0;
  for (; vector + kMixRows <= s.num_vectors; vector += kMixRows) {
    MixVectors<kMixRows>(s, tile, vector, first);
  }
  if (vector < s.num_vectors)
    MixRemainder<kMixRows>(s, tile, vector, s.num_vectors - vector, first);
}

inline AttendState MakeAttendState(const AttendTask& task, const AttendUnit& unit, float* scratch) {
  AttendState s;
  s.task = &task;
  s.unit = &unit;
  s.num_heads = unit.heads.end - unit.heads.begin;
  s.num_vectors = (unit.rows.end - unit.rows.begin) * s.num_heads;
  s.head_dim = task.kv.head_dim;
  s.padded_dim = (s.head_dim + kLanes - 1) / kLanes * kLanes;
  s.transposed_keys = scratch;
  s.zeros = s.transposed_keys + s.padded_dim * kAttendTile;
  s.sums = s.zeros + s.padded_dim;
  s.scores = s.sums + static_cast<int64_t>(s.num_vectors) * s.padded_dim;
  s.largest = s.scores + s.num_vectors * kAttendTile;
  s.totals = s.largest + s.num_vectors;
  for (int i = 0; i < s.padded_dim; ++i) s.zeros[i] = 0.0f;
  for (int64_t i = 0; i < static_cast<int64_t>(s.num_vectors) * s.padded_dim; ++i) s.sums[i] = 0.0f;
  for (int i = 0; i < s.num_vectors; ++i) {
    s.largest[i] = -__builtin_inff();
    s.totals[i] = 0.0f;
  }
  return s;
}

inline void AttendOf(const AttendTask& task, const AttendUnit& unit, float* scratch) {
  AttendState s = MakeAttendState(task, unit, scratch);
  const IndexRange visible = {Visible(s.position(0), task.window).begin,
                              s.position(s.num_vectors - 1) + 1};
  const int first_tile = visible.begin / kAttendTile * kAttendTile;
  TileRows tiles[2];  // the one whose turn it is and the one after it
  int turn = 0;
  FindTile(s, visible, first_tile, &tiles[turn]);
  for (int first = first_tile; first < visible.end; first += kAttendTile) {
    const TileRows& tile = tiles[turn];
    turn = 1 - turn;
    FindTile(s, visible, first + kAttendTile, &tiles[turn]);
    TransposeKeys(s, tile, tiles[turn]);
    ScoreTile(s);
    for (int vector = 0; vector < s.num_vectors; ++vector) {
      const IndexRange lanes = VisibleLanes(s, vector, first);
      if (lanes.begin < lanes.end) SoftmaxTile(s, vector, lanes);
    }
    MixTile(s, tile, first);
  }
  for (int vector = 0; vector < s.num_vectors; ++vector) {
    float* out = task.out + s.row(vector) * task.out_stride + s.column(vector);
    const float* sums = s.sums + static_cast<int64_t>(vector) * s.padded_dim;
    const Floats total = Splat(s.totals[vector]);
    for (int d = 0; d < s.head_dim; d += kLanes) {
      const int count = s.head_dim - d < kLanes ? s.head_dim - d : kLanes;
      StorePart(out + d, Div(Load(sums + d), total), count);
    }
  }
}

}  // namespace
}  // namespace tandem

#endif  // TANDEM_KERNELS_CPU_ATTENTION_KERNELS_H_
