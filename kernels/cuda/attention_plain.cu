// A tile of attention in f32, to caches of f32 or int8. For scores each lane has a position; for
// values each lane has elements.
#include "kernels/cuda/attention_kernels.cuh"

namespace tandem::cuda {

// Read elements from words of a cache: f32, and int8 with a scale for each row after the rows.
struct F32Cache {
  static constexpr int kPerWord = 1;
  TANDEM_DEVICE static float Element(uint32_t word, int) { return BitsToFloat(word); }
  static constexpr bool kIsScaled = false;
};
struct Int8Cache {
  static constexpr int kPerWord = 4;
  TANDEM_DEVICE static float Element(uint32_t word, int i) {
    return static_cast<float>(static_cast<int8_t>(word >> 8 * i & 0xFF));
  }
  static constexpr bool kIsScaled = true;
};

template <int kNumVectors, int kLargestHead, typename Cache, bool kCaps>
class PlainTile {
 public:
  static constexpr int kVectors = kNumVectors;
  static constexpr int kHeadDim = kLargestHead;
  static constexpr int kPassDims = kHeadDim;
  static constexpr AttendShared kAt = AttendSharedOf({kVectors, kHeadDim, false});

  // Loads queries as [head_dim][vectors], with zeros for missing vectors and elements.
  TANDEM_DEVICE static void LoadQueries(const AttendTask& task, const AttendUnit& unit,
                                        float* shared) {
    const int head_dim = task.kv.head_dim;
    const int first_head = KeptInRegister(BlockY()) * unit.heads;
    for (int i = ThreadIndex(); i < kHeadDim * kVectors; i += kAttendWarps * kWarpSize) {
      const int v = i % kVectors, d = i / kVectors;
      float value = 0.0f;
      if (v < unit.num_vectors && d < head_dim) {
        const int head = first_head + unit.HeadOf(v);
        value = Load(RowOf(task.q, unit.RowOf(v)) + int64_t{head} * head_dim + d);
      }
      Store(shared + kAt.queries + i, value);
    }
  }

  TANDEM_DEVICE PlainTile(const AttendTask& task, const AttendUnit& unit, const PositionRange& all,
                          int tile, float* shared)
      : task_(task), unit_(unit), shared_(shared), tile_(tile), in_tile_(InTile(all, tile)) {}

  // Weighs the positions of the tile.
  TANDEM_DEVICE void Weigh() {
    float scores[kVectors] = {};
    auto* const places =
        reinterpret_cast<int64_t*>(shared_ + kAt.places) + WarpIndex() * kAttendTile;
    const int position = tile_ + Lane();
    const bool is_in = in_tile_.begin <= position && position < in_tile_.end;
    float* const scales = shared_ + kAt.scales + WarpIndex() * kAttendTile;
    if (is_in) Score(task_, unit_, position, shared_ + kAt.queries, places, scales, scores);
    Weigh(task_, unit_, position, is_in, shared_, scores);
    SyncWarp();
    all_see_ = Includes(SeenByAll(unit_, task_.form), in_tile_);
  }

  // Stores the tile's sums of values in shared memory.
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

  // Finds the place of a lane's position and computes its scores, each as one chain in increasing
  // order of elements.
  TANDEM_DEVICE static void Score(const AttendTask& task, const AttendUnit& unit, int position,
                                  const float* queries, int64_t* places, float* scales,
                                  float (&scores)[kVectors]) {
    const PagedKvView& kv = task.kv;
    const int words = CeilDiv(kv.head_dim, Cache::kPerWord);
    const int slot = position % kv.page_size;
    const int64_t block = kv.BlockOf(PageOf(kv, unit.sequence, position), BlockY());
    Store(places + Lane(), block + int64_t{slot} * words);
    const int64_t scale_place = block + int64_t{words} * kv.page_size + slot;
    if (Cache::kIsScaled) Store(scales + Lane(), ScaleAt(kv.values, scale_place));
    const uint32_t* const key = static_cast<const uint32_t*>(kv.keys) + block + slot;
    TANDEM_UNROLL_BY(8 / Cache::kPerWord)
    for (int w = 0; w < words; ++w) {
      const uint32_t word = Load(key + int64_t{w} * kv.page_size);
      TANDEM_UNROLL
      for (int i = 0; i < Cache::kPerWord; ++i) {
        AddScores(Cache::Element(word, i), queries + (w * Cache::kPerWord + i) * kVectors, scores);
      }
    }
    const float scale =
        Cache::kIsScaled ? task.form.scale * ScaleAt(kv.keys, scale_place) : task.form.scale;
    TANDEM_UNROLL
    for (int v = 0; v < kVectors; ++v) scores[v] = ScoreOf<kCaps>(task.form, scale, scores[v]);
  }
  TANDEM_DEVICE static float ScaleAt(const void* cache, int64_t place) {
    return BitsToFloat(Load(static_cast<const uint32_t*>(cache) + place));
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

  // Stores the weights of a tile: -1 for a position that a vector does not see.
  TANDEM_DEVICE static void Weigh(const AttendTask& task, const AttendUnit& unit, int position,
                                  bool in_tile, float* shared, const float (&scores)[kVectors]) {
    float* const weights = shared + kAt.weights + (WarpIndex() * kAttendTile + Lane()) * kVectors;
    TANDEM_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const PositionRange visible = VisibleTo(unit.PositionOf(v), task.form);
      const bool sees =
          in_tile && v < unit.num_vectors && visible.begin <= position && position < visible.end;
      const float largest = WarpMax(sees ? scores[v] : kNoScore);
      const float weight = sees ? Exponential(scores[v] - largest) : 0.0f;
      const float total = WarpSum(weight);
      Store(weights + v, sees ? weight : -1.0f);
      if (Lane() == 0) {
        Store(shared + kAt.largest + WarpIndex() * kVectors + v, largest);
        Store(shared + kAt.totals + WarpIndex() * kVectors + v, total);
      }
    }
  }

  // sums[v] += weight * value, as one chain in increasing position. A NaN weight counts as seen.
  template <bool kEdge>
  TANDEM_DEVICE static void AddValues(const AttendTask& task, int tile, int begin, int end,
                                      const float* shared, float (&sums)[kVectors][kLaneWords]) {
    const auto* const places =
        reinterpret_cast<const int64_t*>(shared + kAt.places) + WarpIndex() * kAttendTile;
    TANDEM_UNROLL_BY(kLaneWords > 4 ? 2 : 4)
    for (int position = begin; position < end; ++position) {
      const int j = position - tile;
      const uint32_t* const row = static_cast<const uint32_t*>(task.kv.values) + Load(places + j);
      const float scale =
          Cache::kIsScaled ? Load(shared + kAt.scales + WarpIndex() * kAttendTile + j) : 1.0f;
      const float* const weights =
          shared + kAt.weights + (WarpIndex() * kAttendTile + j) * kVectors;
      float values[kLaneWords];
      LoadValues(row, task.kv.head_dim, scale, values);
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

  // Loads elements lane, lane + 32, ...
  TANDEM_DEVICE static void LoadValues(const uint32_t* row, int head_dim, float scale,
                                       float (&values)[kLaneWords]) {
    TANDEM_UNROLL
    for (int i = 0; i < kLaneWords; ++i) {
      const int d = Lane() + i * kWarpSize;
      if (d >= head_dim) {
        values[i] = 0.0f;
        continue;
      }
      const uint32_t word = Load(row + d / Cache::kPerWord);
      values[i] = Cache::Element(word, d % Cache::kPerWord) * scale;
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
  const AttendUnit& unit_;
  float* const shared_;
  const int tile_;
  const PositionRange in_tile_;
  bool all_see_ = false;
};

namespace {

template <typename Cache, int kChoice>
Error EnqueuePlainSize(const AttendTask& task, Stream stream) {
  constexpr AttendSize kSize = kAttendSizes[kChoice];
  const LaunchShape shape = AttendLaunchShape(kSize, task);
  return task.form.soft_cap > 0.0f
             ? Enqueue<AttendKernel<PlainTile<kSize.vectors, kSize.head_dim, Cache, true>>>(
                   task, shape, stream)
             : Enqueue<AttendKernel<PlainTile<kSize.vectors, kSize.head_dim, Cache, false>>>(
                   task, shape, stream);
}

template <typename Cache>
Error EnqueueCache(const AttendTask& task, Stream stream) {
  switch (AttendSizeOf(task)) {
    case 0:
      return EnqueuePlainSize<Cache, 0>(task, stream);
    case 1:
      return EnqueuePlainSize<Cache, 1>(task, stream);
    case 2:
      return EnqueuePlainSize<Cache, 2>(task, stream);
    case 3:
      return EnqueuePlainSize<Cache, 3>(task, stream);
    default:
      return EnqueuePlainSize<Cache, 4>(task, stream);
  }
}

}  // namespace

Error LaunchPlainAttention(const AttendTask& task, Stream stream) {
  return task.kv.dtype == KvDType::kInt8 ? EnqueueCache<Int8Cache>(task, stream)
                                         : EnqueueCache<F32Cache>(task, stream);
}

}  // namespace tandem::cuda
