// A tile of attention to a cache of bf16 for few rows. Each warp of a block has one tile of a
// split, and loads words from the cache directly in the order of the tensor cores.
#include "kernels/cuda/attention_tensor_math.cuh"

namespace tandem::cuda {

template <int kLargestHead, bool kCaps>
class TensorTile {
 public:
  static constexpr int kVectors = kTensorVectors;
  static constexpr int kHeadDim = kLargestHead;
  static constexpr AttendSize kSize = {kVectors, kHeadDim, true};
  static constexpr int kPassDims = kSize.pass_dims();
  static constexpr AttendShared kAt = AttendSharedOf(kSize);

  TANDEM_DEVICE static void LoadQueries(const AttendTask& task, const AttendUnit& unit,
                                        float* shared) {
    TensorMath::LoadQueries(task, unit, ThreadIndex(), kAttendWarps * kWarpSize,
                            reinterpret_cast<Words4*>(shared + kAt.queries));
  }

  // Finds the positions of the tile at `tile`.
  TANDEM_DEVICE TensorTile(const AttendTask& task, const AttendUnit& unit, const PositionRange& all,
                           int tile, float* shared)
      : task_(task), shared_(shared), math_(task, unit, tile, InTile(all, tile)) {
    if (math_.IsIn(Lane())) {
      const KvPlace place = FindPlace(task.kv, unit.sequence, tile + Lane());
      Store(PlacesOf(false) + Lane(), place.key);
      Store(PlacesOf(true) + Lane(), place.value);
    }
    SyncWarp();
  }

  TANDEM_DEVICE void Weigh() {
    TensorMath::Scores scores = {};
    if (!math_.is_empty()) Score(scores);
    TANDEM_UNROLL
    for (int half = 0; half < 2; ++half) {
      math_.Weigh<kCaps>(half, scores, weights_, shared_ + kAt.largest + WarpIndex() * kVectors,
                         shared_ + kAt.totals + WarpIndex() * kVectors);
    }
  }

  // Stores the tile's sums of elements [pass * kPassDims, (pass + 1) * kPassDims) in shared memory.
  TANDEM_DEVICE void SumValues(int pass) const {
    if (math_.has_edge()) {
      SumPass<true>(pass);
    } else {
      SumPass<false>(pass);
    }
  }

 private:
  static constexpr int kAtATime = 4;  // groups of 16 elements of values
  static_assert(kPassDims % (16 * kAtATime) == 0);

  // Offsets of positions' keys, or values: [2][warps][tile].
  TANDEM_DEVICE int64_t* PlacesOf(bool of_values) const {
    return reinterpret_cast<int64_t*>(shared_ + kAt.places) +
           ((of_values ? kAttendWarps : 0) + WarpIndex()) * kAttendTile;
  }
  TANDEM_DEVICE void Score(TensorMath::Scores& scores) const {
    const int words = KvElementWords(KvDType::kBF16, task_.kv.head_dim);
    const uint32_t* keys[TensorMath::kColumns];
    TANDEM_UNROLL
    for (int column = 0; column < TensorMath::kColumns; ++column) {
      const int place = TensorMath::ColumnPlace(column);
      keys[column] = nullptr;
      if (!math_.IsIn(place)) continue;
      keys[column] = static_cast<const uint32_t*>(task_.kv.keys) + Load(PlacesOf(false) + place);
    }
    const auto key_of = [&](int column, int w) {
      if (keys[column] == nullptr || w >= words) return 0u;
      return Load(keys[column] + int64_t{w} * task_.kv.page_size);
    };
    math_.Score(reinterpret_cast<const Words4*>(shared_ + kAt.queries), key_of, scores);
  }

  template <bool kEdge>
  TANDEM_DEVICE void SumPass(int pass) const {
    const int words = KvElementWords(KvDType::kBF16, task_.kv.head_dim);
    const uint32_t* rows[TensorMath::kPlaces];
    TANDEM_UNROLL
    for (int i = 0; i < TensorMath::kPlaces; ++i) {
      const int place = TensorMath::ValuePlace(i);
      rows[i] = nullptr;
      if (!math_.IsIn(place)) continue;
      rows[i] = static_cast<const uint32_t*>(task_.kv.values) + Load(PlacesOf(true) + place);
    }
    float* const to = shared_ + kAt.sums + WarpIndex() * kVectors * kAt.sum_stride;
    for (int d = 0; d < kPassDims; d += 16 * kAtATime) {
      // Issue all loads before the first value is used.
      TensorMath::Values values[kAtATime];
      TANDEM_UNROLL
      for (int i = 0; i < kAtATime * TensorMath::kPlaces; ++i) {
        const int group = i / TensorMath::kPlaces, place = i % TensorMath::kPlaces;
        const int w = (pass * kPassDims + d) / 2 + group * 8 + Lane() / 4;
        values[group][place] = rows[place] != nullptr && w < words ? Load(rows[place] + w) : 0u;
      }
      TANDEM_UNROLL
      for (int group = 0; group < kAtATime; ++group) {
        float even[4] = {}, odd[4] = {};
        const int first = pass * kPassDims + d + group * 16;
        if (!math_.is_empty() && first < task_.kv.head_dim) {
          math_.Sum<kEdge>(weights_, values[group], even, odd);
        }
        StoreSums(even, odd, to + d + group * 16);
      }
    }
  }

  // Stores elements 4t to 4t + 3 of vectors lane / 4 and lane / 4 + 8, with t = lane % 4.
  TANDEM_DEVICE static void StoreSums(const float (&even)[4], const float (&odd)[4], float* to) {
    TANDEM_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int v = Lane() / 4 + 8 * half;
      const Words4 sums = {{FloatToBits(even[2 * half]), FloatToBits(odd[2 * half]),
                            FloatToBits(even[2 * half + 1]), FloatToBits(odd[2 * half + 1])}};
      Store(reinterpret_cast<Words4*>(to + v * kAt.sum_stride + Lane() % 4 * 4), sums);
    }
  }

  const AttendTask& task_;
  float* const shared_;
  const TensorMath math_;
  TensorMath::Weights weights_;
};

namespace {

template <int kChoice>
Error EnqueueTensorSize(const AttendTask& task, Stream stream) {
  constexpr AttendSize kSize = kAttendSizes[kChoice];
  const LaunchShape shape = AttendLaunchShape(kSize, task);
  return task.form.soft_cap > 0.0f
             ? Enqueue<AttendKernel<TensorTile<kSize.head_dim, true>>>(task, shape, stream)
             : Enqueue<AttendKernel<TensorTile<kSize.head_dim, false>>>(task, shape, stream);
}

}  // namespace

Error LaunchTensorAttention(const AttendTask& task, Stream stream) {
  switch (AttendSizeOf(task)) {
    case 5:
      return EnqueueTensorSize<5>(task, stream);
    case 6:
      return EnqueueTensorSize<6>(task, stream);
    default:
      return EnqueueTensorSize<7>(task, stream);
  }
}

}  // namespace tandem::cuda
