// The parts of attention over an int8 cache by dot products of integers, for all instruction sets.
// Include it after a simd_*.h.
//
// Each query is rounded to integers of 16 bits times its own scale, and so are the weights of each
// tile. Products are summed exactly, so only the few operations on the sums round, and instruction
// sets that form the sums in other ways have the same bits. The weights of positions that are not
// seen are 0, and so are the products: bytes are never NaN.
#ifndef TANDEM_KERNELS_CPU_INT8_ATTENTION_H_
#define TANDEM_KERNELS_CPU_INT8_ATTENTION_H_

#include "kernels/cpu/attention_kernels.h"

namespace tandem {
namespace {

inline constexpr float kMaxQuery = 127.0f * 256.0f;  // its high byte is from -127 to 127
// The largest integer weight. Weights are not negative.
inline constexpr float kMaxWeight = 65535.0f;
// The slack of SoftmaxTile: weights are at most e^kIntegerSlack.
inline constexpr float kIntegerSlack = 1.0f;
// If all elements of a query, or all scales of values, are smaller than this, they count as zeros:
// their inverse might be infinite.
inline constexpr float kNothing = 0x1p-100f;

// The format of the cache (attention_tiles.h), which is read by these functions alone.
struct Int8DotKv {
  static constexpr KvDType kDType = KvDType::kInt8;
  static constexpr int kPerWord = 4;
  static constexpr bool kWidens = false;
};

// ---- Queries ----

// The words of a query for each word of keys.
inline constexpr int kQueryWords = 2;

// How a query becomes integers: their value is `scale`. Not finite if the query is not.
struct QueryScale {
  float inverse;  // 0 if all integers are 0
  float scale;
};

inline QueryScale QueryScaleOf(const float* query, int head_dim) {
  Floats most = Zero();
  Floats nothing = Zero();  // sums of 0 * x: 0, or NaN if an x is not finite
  for (int d = 0; d < head_dim; d += kLanes) {
    const Floats x = LoadPart(query + d, head_dim - d < kLanes ? head_dim - d : kLanes);
    most = Max(most, Max(x, Sub(Zero(), x)));
    nothing = Add(nothing, Mul(x, Zero()));
  }
  const float largest = Largest(most);
  const float not_finite = Sum(nothing);
  const bool any = not_finite == 0.0f && largest >= kNothing;
  return {.inverse = any ? kMaxQuery / largest : 0.0f,
          .scale = any ? largest / kMaxQuery : not_finite};
}

// The queries of the group of `count` vectors that starts at `first`: [words of a key, count,
// kQueryWords], then [count] QueryEnd, the instruction set's constants of a query.
inline uint32_t* GroupQueries(const AttendState& s, int first) {
  return reinterpret_cast<uint32_t*>(s.queries + static_cast<int64_t>(first) * s.padded_dim);
}
template <class QueryEnd>
QueryEnd* QueryEnds(const AttendState& s, int first, int count) {
  const int words = KvElementWords(KvDType::kInt8, s.head_dim);
  return reinterpret_cast<QueryEnd*>(GroupQueries(s, first) + words * count * kQueryWords);
}

// Packs all queries by the instruction set's PackQuery(query, head_dim, words, stride, end), in
// groups of kMost vectors.
//   words: the query's first word; those of the next word of keys are `stride` farther
template <int kMost, class QueryEnd>
void PackIntegerQueries(const AttendState& s) {
  ForGroups<kMost>(s.num_vectors, [&](int first, auto count) {
    for (int r = 0; r < count(); ++r) {
      const float* query =
          s.task->queries + s.row(first + r) * s.task->query_stride + s.column(first + r);
      PackQuery(query, s.head_dim, GroupQueries(s, first) + r * kQueryWords, count() * kQueryWords,
                QueryEnds<QueryEnd>(s, first, count()) + r);
    }
  });
}

// ---- Weights ----

// The integer weights of a tile: words in the instruction set's layout, and the value of the
// integer 1.
inline constexpr int kWeightStep = kAttendTile / 2;

// The factors that turn weights times the scales of their values into integers.
struct IntegerWeights {
  Floats factors[kHalves];
  float step;  // the value of the integer 1; NaN if a scale is NaN
};

inline IntegerWeights IntegerWeightsOf(const AttendState& s, IndexRange lanes) {
  IntegerWeights whole;
  Floats most = Zero();
  uint32_t is_nan = 0;
  for (int h = 0; h < kHalves; ++h) {
    whole.factors[h] = KeepOfHalf(Load(s.value_scales + h * kLanes), h, lanes, 0.0f);
    most = Max(whole.factors[h], most);
    is_nan |= IsNan(whole.factors[h]);
  }
  constexpr float kLargestExp = 2.7182820f;  // e^kIntegerSlack
  const float largest = kLargestExp * Largest(most);
  const bool any = largest >= kNothing;
  const Floats inverse = Splat(any ? kMaxWeight / largest : 0.0f);
  for (int h = 0; h < kHalves; ++h) whole.factors[h] = Mul(whole.factors[h], inverse);
  whole.step = is_nan != 0 ? __builtin_nanf("") : any ? largest / kMaxWeight : 0.0f;
  return whole;
}

// Replaces the scores of a tile by integer weights, by the instruction set's
// store(weights, whole, out).
template <class Store>
void WeighIntegers(const AttendState& s, int first, const Store& store) {
  const bool all_see = s.AllSee(first);
  IntegerWeights whole = IntegerWeightsOf(s, {0, all_see ? kAttendTile : 0});
  for (int vector = 0; vector < s.num_vectors; ++vector) {
    const IndexRange lanes = all_see ? IndexRange{0, kAttendTile} : VisibleLanes(s, vector, first);
    Floats weights[kHalves] = {Zero(), Zero()};
    if (lanes.begin < lanes.end) SoftmaxTile(s, vector, lanes, kIntegerSlack, weights);
    if (!all_see) whole = IntegerWeightsOf(s, lanes);
    store(weights, whole, s.scores + vector * kAttendTile);
  }
}

}  // namespace
}  // namespace tandem

#endif  // TANDEM_KERNELS_CPU_INT8_ATTENTION_H_
