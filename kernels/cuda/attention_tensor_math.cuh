// A tile of attention that one warp computes on tensor cores: 16 query vectors by 32 positions.
//
// Queries and weights are rounded to bf16; keys and values are already bf16. A word of a key is two
// elements of one position, as scores need them. For values, the words of two positions are
// combined into a pair of even elements and a pair of odd elements. The caller provides the words.
#ifndef TANDEM_KERNELS_CUDA_ATTENTION_TENSOR_MATH_CUH_
#define TANDEM_KERNELS_CUDA_ATTENTION_TENSOR_MATH_CUH_

#include "kernels/cuda/attention_kernels.cuh"

namespace tandem::cuda {

class TensorMath {
 public:
  static constexpr int kDepth = 16;                   // of an instruction
  static constexpr int kColumns = kAttendTile / 8;    // instructions across the scores
  static constexpr int kDeep = kAttendTile / kDepth;  // instructions in sequence over the values
  static constexpr int kPlaces = 4 * kDeep;           // positions of a lane's values
  using Scores = float[kColumns][4];
  using Weights = uint32_t[kColumns][2];  // of a lane's two vectors, in the layout of scores
  using Values = uint32_t[kPlaces];

  // The tile of 32 positions from `tile` on. Only positions in `in_tile` count.
  TANDEM_DEVICE TensorMath(const AttendTask& task, const AttendUnit& unit, int tile,
                           const PositionRange& in_tile)
      : task_(task), unit_(unit), tile_(tile), in_tile_(in_tile) {
    TANDEM_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int v = Lane() / 4 + 8 * half;
      positions_[half] = v < unit.num_vectors ? unit.PositionOf(v) : -1;
    }
  }

  // Loads the unit's queries as [head_dim / 16][lanes], the first factor of scores, with zeros for
  // missing vectors and elements. Thread `thread` of `num_threads` does its share.
  TANDEM_DEVICE static void LoadQueries(const AttendTask& task, const AttendUnit& unit, int thread,
                                        int num_threads, Words4* queries) {
    const int used = CeilDiv(task.kv.head_dim, kDepth) * kWarpSize;
    for (int i = thread; i < used; i += num_threads) {
      Words4 packed;
      TANDEM_UNROLL
      for (int word = 0; word < 4; ++word) {
        const PlaceInTile at = WeightPlace(0, i % kWarpSize, word);
        const int d = i / kWarpSize * kDepth + at.input;
        packed.words[word] = PackBf16(QueryElement(task, unit, at.output, d),
                                      QueryElement(task, unit, at.output, d + 1));
      }
      Store(queries + i, packed);
    }
  }

  TANDEM_DEVICE bool is_empty() const { return in_tile_.is_empty(); }
  TANDEM_DEVICE bool IsIn(int place) const {
    return in_tile_.begin <= tile_ + place && tile_ + place < in_tile_.end;
  }
  // A lane's places in the tile: of the columns of its scores, and of its values. For values,
  // instruction i / 4 has positions 2t, 2t + 1, 2t + 8, 2t + 9, with t = lane % 4.
  TANDEM_DEVICE static int ColumnPlace(int column) { return column * 8 + Lane() / 4; }
  TANDEM_DEVICE static int ValuePlace(int i) {
    return i / 4 * kDepth + Lane() % 4 * 2 + i % 2 + i / 2 % 2 * 8;
  }

  // Computes scores, each as one chain of instructions of 16 elements. key_of(column, w) is word w
  // of the key at ColumnPlace(column), which counts only if it IsIn.
  template <typename KeyOf>
  TANDEM_DEVICE void Score(const Words4* queries, const KeyOf& key_of, Scores& scores) const {
    TANDEM_UNROLL_BY(8)
    for (int step = 0; step < CeilDiv(task_.kv.head_dim, kDepth); ++step) {
      const Words4 query = Load(queries + step * kWarpSize + Lane());
      const int first = step * (kDepth / 2) + Lane() % 4;
      TANDEM_UNROLL
      for (int column = 0; column < kColumns; ++column) {
        const uint32_t key[2] = {key_of(column, first), key_of(column, first + 4)};
        MultiplyTile(query, key, scores[column]);
      }
    }
  }

  // Computes the weights of this lane's vector lane / 4 + 8 * half (0 for positions that it does
  // not see), and stores its largest score and its sum of weights, each [16]. Weights are rounded
  // before they are summed, so that they still add up to 1 after the division.
  template <bool kCaps>
  TANDEM_DEVICE void Weigh(int half, const Scores& scores, Weights& rounded, float* all_largest,
                           float* totals) const {
    const int v = Lane() / 4 + 8 * half;
    const PositionRange sees = VisibleTo(positions_[half], task_.form);
    float largest = kNoScore;
    TANDEM_UNROLL
    for (int i = 0; i < 2 * kColumns; ++i) {
      if (!Sees(sees, i)) continue;
      largest = Larger(largest, ScoreAt<kCaps>(scores[i / 2][2 * half + i % 2]));
    }
    largest = Larger(largest, ShuffleXor(largest, 1));
    largest = Larger(largest, ShuffleXor(largest, 2));
    float total = 0.0f;
    TANDEM_UNROLL
    for (int column = 0; column < kColumns; ++column) {
      float weights[2];
      TANDEM_UNROLL
      for (int i = 0; i < 2; ++i) {
        const float score = ScoreAt<kCaps>(scores[column][2 * half + i]);
        weights[i] = Sees(sees, 2 * column + i) ? Exponential(score - largest) : 0.0f;
      }
      rounded[column][half] = PackBf16(weights[0], weights[1]);
      total = total + Bf16Low(rounded[column][half]);
      total = total + Bf16High(rounded[column][half]);
    }
    total = total + ShuffleXor(total, 1);
    total = total + ShuffleXor(total, 2);
    if (Lane() % 4 != 0) return;
    Store(all_largest + v, largest);
    Store(totals + v, total);
  }

  template <bool kCaps>
  TANDEM_DEVICE float ScoreAt(float product) const {
    return ScoreOf<kCaps>(task_.form, task_.form.scale, product);
  }

  // Whether any vector does not see one of the positions that count.
  TANDEM_DEVICE bool has_edge() const {
    return !is_empty() && !Includes(SeenByAll(unit_, task_.form), in_tile_);
  }

  // Sums values, 16 elements at a time: the even and the odd ones of elements 4t to 4t + 3, for
  // vectors lane / 4 and lane / 4 + 8. values[i] is word (first of the 16 elements) / 2 + lane / 4
  // of the position ValuePlace(i), or 0 if that is not IsIn. kEdge: has_edge().
  template <bool kEdge>
  TANDEM_DEVICE void Sum(const Weights& weights, const Values& values, float (&even)[4],
                         float (&odd)[4]) const {
    if (kEdge && Vote(HasWildUnseen(values)) != 0) {
      MultiplyOneByOne(weights, values, even, odd);
    } else {
      Multiply(weights, values, even, odd);
    }
  }

 private:
  TANDEM_DEVICE static float QueryElement(const AttendTask& task, const AttendUnit& unit, int v,
                                          int d) {
    if (v >= unit.num_vectors || d >= task.kv.head_dim) return 0.0f;
    const int head = BlockY() * unit.heads + unit.HeadOf(v);
    return Load(RowOf(task.q, unit.RowOf(v)) + int64_t{head} * task.kv.head_dim + d);
  }

  // Whether the position of a lane's i-th score of a vector is in the tile and seen.
  TANDEM_DEVICE bool Sees(const PositionRange& sees, int i) const {
    const int place = i / 2 * 8 + Lane() % 4 * 2 + i % 2;
    return IsIn(place) && sees.begin <= tile_ + place && tile_ + place < sees.end;
  }

  TANDEM_DEVICE static void Multiply(const Weights& weights, const Values& values, float (&even)[4],
                                     float (&odd)[4]) {
    TANDEM_UNROLL
    for (int i = 0; i < kDeep; ++i) {
      const Words4 factor = {
          {weights[2 * i][0], weights[2 * i][1], weights[2 * i + 1][0], weights[2 * i + 1][1]}};
      uint32_t evens[2], odds[2];
      TANDEM_UNROLL
      for (int pair = 0; pair < 2; ++pair) {
        const uint32_t first = values[4 * i + 2 * pair], second = values[4 * i + 2 * pair + 1];
        evens[pair] = (first & 0xFFFFu) | second << 16;
        odds[pair] = first >> 16 | (second & 0xFFFF0000u);
      }
      MultiplyTile(factor, evens, even);
      MultiplyTile(factor, odds, odd);
    }
  }

  // Whether any value that some vector does not see could change a sum even with a weight of 0:
  // infinities, NaN, and all magnitudes from 2 on. Tensor cores align the terms of a sum to the
  // largest exponent. A product with 0 also has an exponent, which is 126 less than that of its
  // other factor. For values below 2 it is at most -126, which the exponent of the sum so far never
  // falls below, so the product changes nothing.
  TANDEM_DEVICE bool HasWildUnseen(const Values& values) const {
    constexpr uint32_t kFromTwoOn = 0x40004000u;  // the high bits of both exponents
    const PositionRange for_all = SeenByAll(unit_, task_.form);
    uint32_t bits = 0;
    TANDEM_UNROLL
    for (int i = 0; i < kPlaces; ++i) {
      const int position = tile_ + ValuePlace(i);
      if (position < for_all.begin || for_all.end <= position) bits |= values[i];
    }
    return (bits & kFromTwoOn) != 0;
  }

  // Same as Multiply if a weight of 0 times any value were 0: multiplies row after row, with only
  // the values that the row sees.
  TANDEM_DEVICE void MultiplyOneByOne(const Weights& weights, const Values& values,
                                      float (&even)[4], float (&odd)[4]) const {
    const int last = unit_.PositionOf(unit_.num_vectors - 1);
    for (int row = unit_.PositionOf(0); row <= last; ++row) {
      const PositionRange sees = VisibleTo(row, task_.form);
      Values seen;
      TANDEM_UNROLL
      for (int i = 0; i < kPlaces; ++i) {
        const int position = tile_ + ValuePlace(i);
        seen[i] = sees.begin <= position && position < sees.end ? values[i] : 0u;
      }
      float row_even[4] = {}, row_odd[4] = {};
      Multiply(weights, seen, row_even, row_odd);
      TANDEM_UNROLL
      for (int i = 0; i < 4; ++i) {
        if (positions_[i / 2] != row) continue;
        even[i] = row_even[i];
        odd[i] = row_odd[i];
      }
    }
  }

  const AttendTask& task_;
  const AttendUnit& unit_;
  const int tile_;
  const PositionRange in_tile_;
  int positions_[2];  // of this lane's vectors lane / 4 and lane / 4 + 8; -1 for a missing vector
};

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_ATTENTION_TENSOR_MATH_CUH_
