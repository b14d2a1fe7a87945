// Attention of one unit over the paged cache. Include it after a simd_*.h.
//
// A query vector is one row and head. Its softmax runs online over tiles of kAttendTile absolute
// positions, in increasing order. It starts anew with every chunk of kAttendChunk positions, and
// the chunks are merged in increasing order.
//
// A score has lanes over positions and one chain over the head's dimensions. A sum of values has
// lanes over dimensions and one chain over the visible positions. So a vector's bits do not depend
// on the other vectors of the unit.
//
// Lanes that a vector does not see are replaced before the softmax and left out after it. They are
// never multiplied by zero, because the cache may hold NaN there.
#ifndef TANDEM_KERNELS_CPU_ATTENTION_KERNELS_H_
#define TANDEM_KERNELS_CPU_ATTENTION_KERNELS_H_

#include <type_traits>

#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/exponential.h"

namespace tandem {
namespace {

// ---- Groups of vectors ----

// Calls f(first, size) for one group of `count` <= kMost vectors. size() is a constant.
template <int kMost, class F>
void ForGroup(int first, int count, const F& f) {
  if (count == kMost) return f(first, std::integral_constant<int, kMost>());
  if constexpr (kMost > 1) ForGroup<kMost - 1>(first, count, f);
}
// Calls f for groups of at most kMost of `num_vectors` vectors. They are shared out evenly, because
// a group of few vectors has too few sums to hide the latency of multiply-adds.
template <int kMost, class F>
void ForGroups(int num_vectors, const F& f) {
  const int num_groups = (num_vectors + kMost - 1) / kMost;
  for (int first = 0, left = num_groups; left > 0; --left) {
    const int count = (num_vectors - first + left - 1) / left;
    ForGroup<kMost>(first, count, f);
    first += count;
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

// Copies the unit's queries into the layout that ScoreGroup reads.
template <class Kv>
void PackQueries(const AttendState& s) {
  constexpr int kStep = Kv::kPerWord / Kv::kParts;  // elements of a query in a factor
  float* packed = s.queries;
  ForGroups<kScoreRows>(s.num_vectors, [&](int first, auto constant) {
    const int count = constant();
    for (int r = 0; r < count; ++r) {
      const float* query =
          s.task->queries + s.row(first + r) * s.task->query_stride + s.column(first + r);
      for (int d = 0; d < s.head_dim; d += kStep) {
        const float next = kStep > 1 && d + 1 < s.head_dim ? query[d + 1] : 0.0f;
        packed[d / kStep * count + r] = Kv::Factor(query[d], next);
      }
    }
    packed += count * s.head_dim;
  });
}

// ---- Softmax ----

inline constexpr float kReferenceSlack = 8.0f;

// Computes the softmax weights of a tile: the exponentials of the scores minus a reference. The
// reference changes, and the sums are rescaled, only if a score exceeds it by more than `slack`, so
// weights are at most e^slack. Nearly always the largest score of a chunk's first tile stays the
// reference, which makes the branch predictable.
//   weights: [kHalves], 0 in lanes that are not seen
inline void SoftmaxTile(const AttendState& s, int vector, IndexRange lanes, float slack,
                        Floats* weights) {
  const float* scores = s.scores + vector * kAttendTile;
  const bool sees_all = lanes.begin <= 0 && lanes.end >= kAttendTile;
  const float before = s.references[vector];
  Floats score[kHalves];
  Floats most = Splat(before);
  for (int h = 0; h < kHalves; ++h) {
    score[h] = Mul(Load(scores + h * kLanes), Load(s.key_scales + h * kLanes));
    if (s.task->form.soft_cap > 0.0f) score[h] = SoftCapped(score[h], s.task->form.soft_cap);
    if (!sees_all) score[h] = KeepOfHalf(score[h], h, lanes, -__builtin_inff());
    most = Max(score[h], most);
  }
  float* sums = s.sums + static_cast<int64_t>(vector) * s.sum_stride;
  float* totals = sums + s.padded_dim;
  float reference = before;
  // In a chunk's first tile `before` is -infinity, and the sums are zeros.
  if (AtMost(Sub(most, Splat(before)), Splat(slack)) != 0xFFFF) {
    reference = Largest(most);
    const Floats shrink = Exp(Splat(before - reference));
    for (int d = 0; d < s.sum_stride; d += kLanes) Store(sums + d, Mul(Load(sums + d), shrink));
    s.references[vector] = reference;
  }
  Floats total = Load(totals);
  for (int h = 0; h < kHalves; ++h) {
    weights[h] = ExpOfScore(Sub(score[h], Splat(reference)));
    if (!sees_all) weights[h] = KeepOfHalf(weights[h], h, lanes, 0.0f);
    total = Add(total, weights[h]);
  }
  Store(totals, total);
}

// Replaces the scores of a tile by its weights.
template <class Kv>
void WeighTile(const AttendState& s, int first) {
  for (int vector = 0; vector < s.num_vectors; ++vector) {
    const IndexRange lanes =
        s.AllSee(first) ? IndexRange{0, kAttendTile} : VisibleLanes(s, vector, first);
    if (lanes.begin >= lanes.end) continue;
    Floats weights[kHalves];
    SoftmaxTile(s, vector, lanes, kReferenceSlack, weights);
    if constexpr (Kv::kDType == KvDType::kInt8) {
      for (int h = 0; h < kHalves; ++h) {
        weights[h] = Mul(weights[h], Load(s.value_scales + h * kLanes));
      }
    }
    Kv::StoreWeights(s.scores + vector * kAttendTile, weights);
  }
}

// ---- Sums of values ----

// sums += weights times values of lanes [lanes), for kVectors vectors and kWide * 16 dimensions
// from `d` on, or for `count` < 16 dimensions if kPart.
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
    // One pointer for the factors of all vectors: with an index for each vector, the compiler used
    // a register for each.
    const float* factors = weights + first / Kv::kPositions;
    for (int lane = first; lane < end;
         lane += Kv::kPositions, values += Kv::kPositions * half.value_stride, ++factors) {
      fetcher.Step();
      typename Kv::Elements value[kWide];
      Kv::template Values<kWide, kPart>(values, half.value_stride, {begin - lane, end - lane},
                                        count, value);
#pragma GCC unroll 8
      for (int r = 0; r < kVectors; ++r) {
        const typename Kv::Elements weight = Kv::SplatFactor(factors + r * kAttendTile);
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

// The vectors of a group see nearly the same lanes. The lanes that all of them see are mixed for
// all vectors at once. The lanes before and after these are mixed for each vector alone, so that
// each vector adds its lanes in increasing order.
template <class Kv, int kVectors>
void MixVectors(const AttendState& s, const Tile& tile, int vector, int first) {
  if (s.AllSee(first)) {
    MixAllDimensions<Kv, kVectors>(s, tile, vector, {0, kAttendTile});
  } else if constexpr (kVectors == 1) {
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
  s.visible = {Visible(s.position(0), task.form).begin, s.position(s.num_vectors - 1) + 1};
  s.seen_by_all = {Visible(s.position(s.num_vectors - 1), task.form).begin, s.position(0) + 1};
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

// Attends to one tile of a cache of format Kv. `tile` holds its elements in format Read.
template <class Kv, class Read>
void AttendTile(const AttendState& s, int first, const Tile& tile) {
  ForGroups<kScoreRows>(
      s.num_vectors, [&](int vector, auto count) { ScoreGroup<Read, count()>(s, tile, vector); });
  WeighTile<Kv>(s, first);
  ForGroups<kMixRows>(s.num_vectors, [&](int vector, auto count) {
    MixVectors<Read, count()>(s, tile, vector, first);
  });
}

// Computes the softmax of positions [first, end), which are in one chunk, into s.sums and
// s.references.
template <class Kv>
void AttendChunk(const AttendState& s, int first, int end) {
  for (int64_t i = 0; i < static_cast<int64_t>(s.num_vectors) * s.sum_stride; ++i) s.sums[i] = 0.0f;
  for (int i = 0; i < s.num_vectors; ++i) s.references[i] = -__builtin_inff();
  if (first < s.visible.begin) first = s.visible.begin / kAttendTile * kAttendTile;
  if (s.task->kv.page_size % kLanes != 0) {
    for (; first < end; first += kAttendTile) {
      Tile gathered;
      GatherScales<Kv>(s, first);
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
  Tile tiles[2];  // the current tile and the next one
  int turn = 0;
  FindTile<Kv>(s, first, &tiles[turn]);
  for (; first < end; first += kAttendTile) {
    const Tile& tile = tiles[turn];
    turn = 1 - turn;
    FindTile<Kv>(s, first + kAttendTile, &tiles[turn]);
    FetchMeanwhile<Kv>(s, tiles[turn]);
    FindScales<Kv>(s, tile);
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

// Whether a vector sees a position in chunk `chunk`; below, whether it sees one before the chunk.
inline bool SeesChunk(const AttendState& s, int vector, int chunk) {
  const IndexRange visible = Visible(s.position(vector), s.task->form);
  return visible.begin < (chunk + 1) * kAttendChunk && visible.end > chunk * kAttendChunk;
}
inline bool SeesBeforeChunk(const AttendState& s, int vector, int chunk) {
  return Visible(s.position(vector), s.task->form).begin < chunk * kAttendChunk;
}

// Merges the state of a chunk into that of the chunks before it.
//   merged, state: laid out as s.sums, followed by s.references
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
    const IndexRange visible = Visible(s.position(vector), s.task->form);
    const bool sees_any = visible.begin < visible.end;
    const Floats total = Splat(Sum(Load(sums + s.padded_dim)));
    for (int d = 0; d < s.head_dim; d += kLanes) {
      const int count = s.head_dim - d < kLanes ? s.head_dim - d : kLanes;
      StorePart(out + d, sees_any ? Div(Load(sums + d), total) : Zero(), count);
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
