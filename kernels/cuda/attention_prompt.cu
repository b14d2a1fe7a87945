// Attention of prompts to a cache of bf16. Each warp has 16 query vectors and all positions, in
// tiles of 32 that the warps of a block read together, so keys and values are read once for 64
// vectors.
//
// The order is the same as for few rows (attention_kernels.cuh): first a split's scores, then the
// factors of its tiles, then its values, tile after tile. The bits are the same too.
#include "kernels/cuda/attention_tensor_math.cuh"

namespace tandem::cuda {

template <int kLargestHead, bool kCaps>
class PromptAttendKernel {
 public:
  using Task = AttendTask;
  static constexpr int kThreads = kPromptWarps * kWarpSize;

  TANDEM_DEVICE static void Run(const Task& task, unsigned char* bytes) {
    const AttendUnit unit = FindUnit(task, BlockX(), kPromptVectors);
    WaitForKernelsBefore();
    if (unit.sequence < 0) return;
    PromptAttendKernel warp(task, unit, reinterpret_cast<float*>(bytes));
    const PositionRange all = SeenByAny(unit, task.form);
    for (int split = all.begin / kSplitPositions; split * kSplitPositions < all.end; ++split) {
      warp.AttendSplit(all, split);
    }
    if (warp.is_used()) warp.StoreOut();
  }

 private:
  static constexpr int kVectors = kTensorVectors;
  static constexpr int kHeadWords = kLargestHead / 2;
  static constexpr int kTileWords = kAttendTile * kHeadWords;
  static constexpr int kGroups = kLargestHead / 16;  // of 16 elements
  static constexpr PromptShared kAt = PromptSharedOf(kLargestHead);
  // Sums of this lane's vectors lane / 4 and lane / 4 + 8: four elements of each group.
  using Sums = float[kGroups][2][4];

  TANDEM_DEVICE PromptAttendKernel(const Task& task, const AttendUnit& block, float* shared)
      : task_(task), shared_(shared), unit_(block), kept_{} {
    const int first = WarpIndex() * kVectors, left = block.num_vectors - first;
    unit_.first_vector += first;
    unit_.num_vectors = left < 0 ? 0 : left < kVectors ? left : kVectors;
    if (is_used()) seen_ = SeenByAny(unit_, task.form);
    TensorMath::LoadQueries(task, unit_, Lane(), kWarpSize, queries());
    if (Lane() < kVectors) {
      const AttendStates states = StatesOfWarp();
      Store(states.running + Lane(), kNoScore);
      Store(states.running + kVectors + Lane(), 0.0f);
    }
    SyncWarp();
  }
  TANDEM_DEVICE bool is_used() const { return unit_.num_vectors > 0; }

  // Tiles 0 to 7 of keys, then of values, alternate between two places: while one tile is used, the
  // next one is in flight.
  TANDEM_DEVICE void AttendSplit(const PositionRange& all, int split) {
    FindPlaces(all, split);
    Barrier();
    CopyStage(all, split, 0);
    Arrive();
    for (int stage = 0; stage < kSplitTiles; ++stage) {
      CopyStage(all, split, stage + 1);
      WeighTile(split * kSplitPositions + stage * kAttendTile, stage);
      Arrive();
    }
    if (Lane() < kVectors) MergeSplit<kVectors>(StatesOfWarp(), Lane());
    SyncWarp();
    Sums sums = {};
    for (int stage = kSplitTiles; stage < 2 * kSplitTiles; ++stage) {
      if (stage + 1 < 2 * kSplitTiles) CopyStage(all, split, stage + 1);
      AddTile(split * kSplitPositions + (stage - kSplitTiles) * kAttendTile, stage, sums);
      Arrive();
    }
    const AttendStates states = StatesOfWarp();
    TANDEM_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int v = Lane() / 4 + 8 * half;
      const float before = Load(states.merging + v), now = Load(states.merging + kVectors + v);
      ForElements([&](int group, int i) {
        float& kept = kept_[group][half][i];
        kept = MulAdd(kept, before, sums[group][half][i] * now);
      });
    }
  }

  template <typename Do>
  TANDEM_DEVICE static void ForElements(const Do& what) {
    TANDEM_UNROLL
    for (int group = 0; group < kGroups; ++group) {
      TANDEM_UNROLL
      for (int i = 0; i < 4; ++i) what(group, i);
    }
  }

  // ---- Reads shared by the block ----

  TANDEM_DEVICE int64_t* places() const { return reinterpret_cast<int64_t*>(shared_ + kAt.places); }
  TANDEM_DEVICE uint32_t* StageAt(int stage) const {
    return reinterpret_cast<uint32_t*>(shared_ + kAt.stages + stage % 2 * kAt.stage_words);
  }
  TANDEM_DEVICE void FindPlaces(const PositionRange& all, int split) const {
    for (int i = ThreadIndex(); i < kSplitPositions; i += kThreads) {
      const int position = split * kSplitPositions + i;
      if (position < all.begin || position >= all.end) continue;
      const KvPlace place = FindPlace(task_.kv, unit_.sequence, position);
      Store(places() + i, place.key);
      Store(places() + kSplitPositions + i, place.value);
    }
  }

  // Starts to copy a stage, with zeros for positions that no vector sees. Neighbouring threads copy
  // adjacent words: for keys, the same word of consecutive positions; for values, the words of one
  // position.
  TANDEM_DEVICE void CopyStage(const PositionRange& all, int split, int stage) const {
    const bool of_keys = stage < kSplitTiles;
    const int words = KvElementWords(KvDType::kBF16, task_.kv.head_dim);
    const auto* const cache =
        static_cast<const uint32_t*>(of_keys ? task_.kv.keys : task_.kv.values);
    const int64_t stride = of_keys ? task_.kv.page_size : 1;
    const int tile = stage % kSplitTiles * kAttendTile;
    TANDEM_UNROLL_BY(4)
    for (int i = ThreadIndex(); i < kTileWords; i += kThreads) {
      const int place = of_keys ? i % kAttendTile : i / kHeadWords;
      const int w = of_keys ? i / kAttendTile : i % kHeadWords;
      const int position = split * kSplitPositions + tile + place;
      uint32_t* const to =
          StageAt(stage) + (of_keys ? w * kAt.key_stride + place : place * kAt.value_stride + w);
      if (w < words && position >= all.begin && position < all.end) {
        const int64_t at = Load(places() + (of_keys ? 0 : kSplitPositions) + tile + place);
        CopyAsync4(to, cache + at + w * stride);
      } else {
        Store(to, 0u);
      }
    }
    CopyCommit();
  }
  // After this call all threads can read the copied stage, and none reads the previous one.
  TANDEM_DEVICE static void Arrive() {
    CopyWait<0>();
    Barrier();
  }

  // ---- Computations of each warp ----

  TANDEM_DEVICE Words4* queries() const {
    return reinterpret_cast<Words4*>(shared_ + kAt.queries + WarpIndex() * kAt.query_words);
  }
  TANDEM_DEVICE float* States() const {
    return shared_ + kAt.states + WarpIndex() * kAt.state_words;
  }
  TANDEM_DEVICE AttendStates StatesOfWarp() const {
    constexpr int kOfTiles = kSplitTiles * kVectors;
    float* const states = States();
    return {states, states + kOfTiles, states + 2 * kOfTiles, states + 3 * kOfTiles,
            states + 3 * kOfTiles + 2 * kVectors};
  }
  // A tile's weights, [8][lanes].
  TANDEM_DEVICE uint32_t* WeightsOf(int tile) const {
    return reinterpret_cast<uint32_t*>(shared_ + kAt.weights + WarpIndex() * kAt.weight_words) +
           tile * (2 * TensorMath::kColumns * kWarpSize) + Lane();
  }

  TANDEM_DEVICE void WeighTile(int position, int stage) const {
    float* const largest = States() + stage * kVectors;
    float* const totals = largest + kSplitTiles * kVectors;
    const TensorMath math(task_, unit_, position, InTile(seen_, position));
    if (math.is_empty()) {
      if (Lane() >= kVectors) return;
      Store(largest + Lane(), kNoScore);
      Store(totals + Lane(), 0.0f);
      return;
    }
    const uint32_t* const keys = StageAt(stage);
    const auto key_of = [&](int column, int w) {
      return Load(keys + w * kAt.key_stride + TensorMath::ColumnPlace(column));
    };
    TensorMath::Scores scores = {};
    math.Score(queries(), key_of, scores);
    TensorMath::Weights weights;
    TANDEM_UNROLL
    for (int half = 0; half < 2; ++half) math.Weigh<kCaps>(half, scores, weights, largest, totals);
    TANDEM_UNROLL
    for (int i = 0; i < 2 * TensorMath::kColumns; ++i) {
      Store(WeightsOf(stage) + i * kWarpSize, weights[i / 2][i % 2]);
    }
  }

  TANDEM_DEVICE void AddTile(int position, int stage, Sums& sums) const {
    const TensorMath math(task_, unit_, position, InTile(seen_, position));
    if (math.is_empty()) return;
    if (math.has_edge()) {
      AddValues<true>(math, stage, sums);
    } else {
      AddValues<false>(math, stage, sums);
    }
  }

  template <bool kEdge>
  TANDEM_DEVICE void AddValues(const TensorMath& math, int stage, Sums& sums) const {
    const int tile = stage - kSplitTiles;
    TensorMath::Weights weights;
    TANDEM_UNROLL
    for (int i = 0; i < 2 * TensorMath::kColumns; ++i) {
      weights[i / 2][i % 2] = Load(WeightsOf(tile) + i * kWarpSize);
    }
    const float* const factors = StatesOfWarp().factors + tile * kVectors + Lane() / 4;
    const float factor[2] = {Load(factors), Load(factors + 8)};
    const uint32_t* const stage_values = StageAt(stage);
    TANDEM_UNROLL
    for (int group = 0; group < kGroups; ++group) {
      if (group * 16 >= task_.kv.head_dim) continue;
      TensorMath::Values values;
      TANDEM_UNROLL
      for (int i = 0; i < TensorMath::kPlaces; ++i) {
        const int place = TensorMath::ValuePlace(i);
        const uint32_t word =
            Load(stage_values + place * kAt.value_stride + group * 8 + Lane() / 4);
        values[i] = math.IsIn(place) ? word : 0u;
      }
      float even[4] = {}, odd[4] = {};
      math.Sum<kEdge>(weights, values, even, odd);
      TANDEM_UNROLL
      for (int half = 0; half < 2; ++half) {
        float(&to)[4] = sums[group][half];
        to[0] = MulAdd(even[2 * half], factor[half], to[0]);
        to[1] = MulAdd(odd[2 * half], factor[half], to[1]);
        to[2] = MulAdd(even[2 * half + 1], factor[half], to[2]);
        to[3] = MulAdd(odd[2 * half + 1], factor[half], to[3]);
      }
    }
  }

  TANDEM_DEVICE void StoreOut() const {
    TANDEM_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int v = Lane() / 4 + 8 * half;
      if (v >= unit_.num_vectors) continue;
      const int head = BlockY() * unit_.heads + unit_.HeadOf(v);
      const int row = unit_.RowOf(v), first_col = head * task_.kv.head_dim;
      const float total = Load(StatesOfWarp().running + kVectors + v);
      const auto result = [&](int group, int i) { return Quotient(kept_[group][half][i], total); };
      ForElements([&](int group, int i) {
        const int d = group * 16 + Lane() % 4 * 4 + i;
        if (d >= task_.kv.head_dim) return;
        if (task_.out.data != nullptr) {
          Store(RowOf(task_.out, row) + first_col + d, result(group, i));
        } else if (i % 2 == 0) {
          StorePair(task_.next, task_.out.rows, row, first_col + d,
                    PackBf16(result(group, i), result(group, i + 1)));
        }
      });
    }
  }

  const Task& task_;
  float* const shared_;
  AttendUnit unit_;              // of the warp; may have no vectors
  PositionRange seen_ = {0, 0};  // by at least one of its vectors
  Sums kept_;
};

namespace {

template <int kHeadDim>
Error EnqueuePromptSize(const AttendTask& task, Stream stream) {
  const LaunchShape shape = PromptAttendShape(kHeadDim, task);
  return task.form.soft_cap > 0.0f
             ? Enqueue<PromptAttendKernel<kHeadDim, true>>(task, shape, stream)
             : Enqueue<PromptAttendKernel<kHeadDim, false>>(task, shape, stream);
}

}  // namespace

Error LaunchPromptAttention(const AttendTask& task, Stream stream) {
  return task.kv.head_dim > 64 ? EnqueuePromptSize<128>(task, stream)
                               : EnqueuePromptSize<64>(task, stream);
}

}  // namespace tandem::cuda
