// A tile of attention in f32: lanes over positions for scores, over elements for values.
#ifndef TANDEM_KERNELS_CUDA_ATTENTION_PLAIN_CUH_
#define TANDEM_KERNELS_CUDA_ATTENTION_PLAIN_CUH_

#include "kernels/cuda/attention_kernels.cuh"

namespace tandem::cuda {

template <int kNumVectors, int kLargestHead>
class PlainTile {
 public:
  static constexpr int kVectors = kNumVectors;
  static constexpr int kHeadDim = kLargestHead;
  static constexpr int kPassDims = kHeadDim;
  static constexpr AttendShared kAt = AttendSharedOf({kVectors, kHeadDim, false});

  // [head_dim][vectors], zeros where there is nothing.
  TANDEM_DEVICE static void LoadQueries(const AttendTask& task, const AttendUnit& unit,
                                        float* shared) {
    const int head_dim = task.kv.head_dim;
    for (int i = ThreadIndex(); i < kHeadDim * kVectors; i += kAttendWarps * kWarpSize) {
      const int v = i % kVectors, d = i / kVectors;
      float value = 0.0f;
      if (v < unit.num_vectors && d < head_dim) {
        const int head = BlockY() * unit.heads + unit.HeadOf(v);
        value = Load(RowOf(task.q, unit.RowOf(v)) + int64_t{head} * head_dim + d);
      }
      Store(shared + kAt.queries + i, value);
    }
  }

  // Weighs the positions of the tile at `tile`.
  TANDEM_DEVICE PlainTile(const AttendTask& task, const AttendUnit& unit, const PositionRange& all,
                          int tile, float* shared)
      : task_(task), shared_(shared), tile_(tile), in_tile_(InTile(all, tile)) {
    float scores[kVectors] = {};
    auto* const places =
        reinterpret_cast<int64_t*>(shared + kAt.places) + WarpIndex() * kAttendTile;
    const int position = tile + Lane();
    const bool is_in = in_tile_.begin <= position && position < in_tile_.end;
    if (is_in) Score(task, unit, position, shared + kAt.queries, places, scores);
    Weigh(task, unit, position, is_in, shared, scores);
    SyncWarp();
    all_see_ = Includes(SeenByAll(unit, task.window), in_tile_);
  }

  // The tile's sums of values, into shared memory.
  TANDEM_DEVICE void SumValues(int) const {
    float sums[kVectors][kLaneWords] = {};
    if (all_see_) {
      AddValues<false>(task_, tile_, in_tile_.begin, in_tile_.end, shared_, sums);
    } else {
      AddValues<true>(task_, tile_, in_tile_.begin, in_tile_.end, shared_, sums);
    }
    StoreTile(shared_, sums);
  }

 private:
  static constexpr int kLaneWords = kHeadDim / kWarpSize;

  // A lane's position: its place, and its scores, each one chain in increasing element.
  TANDEM_DEVICE static void Score(const AttendTask& task, const AttendUnit& unit, int position,
                                  const float* queries, int64_t* places,
                                  float (&scores)[kVectors]) {
    const PagedKvView& kv = task.kv;
    const int words = kv.head_dim;
    const int64_t page =
        Load(kv.page_tables + int64_t{unit.sequence} * kv.max_pages + position / kv.page_size);
    const int slot = position % kv.page_size;
    const int64_t block = kv.BlockOf(page, BlockY());
    Store(places + Lane(), block + int64_t{slot} * words);
    const uint32_t* const key = static_cast<const uint32_t*>(kv.keys) + block + slot;
    TANDEM_UNROLL_BY(8)
    for (int w = 0; w < words; ++w) {
      const uint32_t word = Load(key + int64_t{w} * kv.page_size);
      AddScores(BitsToFloat(word), queries + w * kVectors, scores);
    }
    TANDEM_UNROLL
    for (int v = 0; v < kVectors; ++v) scores[v] = scores[v] * task.scale;
  }
  TANDEM_DEVICE static void AddScores(float key, const float* queries, float (&scores)[kVectors]) {
    TANDEM_UNROLL
    for (int v = 0; v < kVectors; v += 4) {
      const Words4 four = Load(reinterpret_cast<const Words4*>(queries + v));
      TANDEM_UNROLL
      for (int i = 0; i < 4; ++i) {
        scores[v + i] = MulAdd(BitsToFloat(four.words[i]), key, scores[v + i]);
      }
    }
  }

  // Weights of a tile, -1 for a position that a vector does not see.
  TANDEM_DEVICE static void Weigh(const AttendTask& task, const AttendUnit& unit, int position,
                                  bool in_tile, float* shared, const float (&scores)[kVectors]) {
    float* const weights = shared + kAt.weights + (WarpIndex() * kAttendTile + Lane()) * kVectors;
    TANDEM_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const PositionRange visible = VisibleTo(unit.PositionOf(v), task.window);
      const bool sees =
          in_tile && v < unit.num_vectors && visible.begin <= position && position < visible.end;
      const float largest = WarpMax(sees ? scores[v] : kNothingSeen);
      const float weight = sees ? Exponential(scores[v] - largest) : 0.0f;
      const float total = WarpSum(weight);
      Store(weights + v, sees ? weight : -1.0f);
      if (Lane() == 0) {
        Store(shared + kAt.largest + WarpIndex() * kVectors + v, largest);
        Store(shared + kAt.totals + WarpIndex() * kVectors + v, total);
      }
    }
  }

  // sums[v] += weight * value, one chain in increasing position. A NaN weight is none of -1.
  template <bool kEdge>
  TANDEM_DEVICE static void AddValues(const AttendTask& task, int tile, int begin, int end,
                                      const float* shared, float (&sums)[kVectors][kLaneWords]) {
    const auto* const places =
        reinterpret_cast<const int64_t*>(shared + kAt.places) + WarpIndex() * kAttendTile;
    const int words = task.kv.head_dim;
    TANDEM_UNROLL_BY(kLaneWords > 4 ? 2 : 4)
    for (int position = begin; position < end; ++position) {
      const int j = position - tile;
      const uint32_t* const row = static_cast<const uint32_t*>(task.kv.values) + Load(places + j);
      const float* const weights =
          shared + kAt.weights + (WarpIndex() * kAttendTile + j) * kVectors;
      float values[kLaneWords];
      LoadValues(row, words, values);
      TANDEM_UNROLL
      for (int v = 0; v < kVectors; v += 4) {
        const Words4 four = Load(reinterpret_cast<const Words4*>(weights + v));
        TANDEM_UNROLL
        for (int i = 0; i < 4; ++i) {
          const float weight = BitsToFloat(four.words[i]);
          if (kEdge && weight < 0.0f) continue;
          TANDEM_UNROLL
          for (int e = 0; e < kLaneWords; ++e) {
            sums[v + i][e] = MulAdd(weight, values[e], sums[v + i][e]);
          }
        }
      }
    }
  }

  // Elements of words lane, lane + 32, ...
  TANDEM_DEVICE static void LoadValues(const uint32_t* row, int words,
                                       float (&values)[kLaneWords]) {
    TANDEM_UNROLL
    for (int i = 0; i < kLaneWords; ++i) {
      const int w = Lane() + i * kWarpSize;
      values[i] = w < words ? BitsToFloat(Load(row + w)) : 0.0f;
    }
  }

  TANDEM_DEVICE static void StoreTile(float* shared, const float (&sums)[kVectors][kLaneWords]) {
    float* const to = shared + kAt.sums + WarpIndex() * kVectors * kAt.sum_stride;
    TANDEM_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      TANDEM_UNROLL
      for (int e = 0; e < kLaneWords; ++e) {
        Store(to + v * kAt.sum_stride + Lane() + e * kWarpSize, sums[v][e]);
      }
    }
  }

  const AttendTask& task_;
  float* const shared_;
  const int tile_;
  const PositionRange in_tile_;
  bool all_see_;
};

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_ATTENTION_PLAIN_CUH_
