// A tile of attention on tensor cores: 16 query vectors by 32 positions.
//
// Queries and weights are rounded to bf16; what they multiply is bf16 already and is loaded from
// the cache straight into the order of the instruction (MultiplyTile in simt.h): a word of a key is
// two elements of one position, as scores want them; of values two positions' words make the pairs
// of an even and of an odd element.
#ifndef TANDEM_KERNELS_CUDA_ATTENTION_TENSOR_CUH_
#define TANDEM_KERNELS_CUDA_ATTENTION_TENSOR_CUH_

#include "kernels/cuda/attention_kernels.cuh"

namespace tandem::cuda {

template <int kLargestHead>
class TensorTile {
 public:
  static constexpr int kVectors = 16;
  static constexpr int kHeadDim = kLargestHead;
  static constexpr AttendSize kSize = {kVectors, kHeadDim, true};
  static constexpr int kPassDims = kSize.pass_dims();
  static constexpr AttendShared kAt = AttendSharedOf(kSize);

  // [head_dim / 16][lanes]: the first factor of scores, zeros where there is nothing.
  TANDEM_DEVICE static void LoadQueries(const AttendTask& task, const AttendUnit& unit,
                                        float* shared) {
    const int used = CeilDiv(task.kv.head_dim, kDepth) * kWarpSize;
    for (int i = ThreadIndex(); i < used; i += kAttendWarps * kWarpSize) {
      Words4 packed;
      TANDEM_UNROLL
      for (int word = 0; word < 4; ++word) {
        const PlaceInTile at = WeightPlace(0, i % kWarpSize, word);
        const int d = i / kWarpSize * kDepth + at.input;
        packed.words[word] = PackBf16(QueryElement(task, unit, at.output, d),
                                      QueryElement(task, unit, at.output, d + 1));
      }
      Store(reinterpret_cast<Words4*>(shared + kAt.queries) + i, packed);
    }
  }

  // Weighs the positions of the tile at `tile`.
  TANDEM_DEVICE TensorTile(const AttendTask& task, const AttendUnit& unit, const PositionRange& all,
                           int tile, float* shared)
      : task_(task), unit_(unit), shared_(shared), tile_(tile), in_tile_(InTile(all, tile)) {
    float scores[kColumns][4] = {};
    if (!is_empty()) {
      FindPlaces();
      SyncWarp();
      Score(scores);
    }
    Weigh(0, scores);
    Weigh(1, scores);
  }

  // The tile's sums of elements [pass * kPassDims, (pass + 1) * kPassDims), into shared memory.
  TANDEM_DEVICE void SumValues(int pass) const {
    if (is_empty() || Includes(SeenByAll(unit_, task_.window), in_tile_)) {
      SumPass<false>(pass);
    } else {
      SumPass<true>(pass);
    }
  }

 private:
  static constexpr int kDepth = 16;                   // of an instruction
  static constexpr int kColumns = kAttendTile / 8;    // of scores: instructions side by side
  static constexpr int kDeep = kAttendTile / kDepth;  // of values: instructions one after the other

  TANDEM_DEVICE bool is_empty() const { return in_tile_.begin >= in_tile_.end; }
  TANDEM_DEVICE bool IsIn(int place) const {
    return in_tile_.begin <= tile_ + place && tile_ + place < in_tile_.end;
  }

  TANDEM_DEVICE static float QueryElement(const AttendTask& task, const AttendUnit& unit, int v,
                                          int d) {
    if (v >= unit.num_vectors || d >= task.kv.head_dim) return 0.0f;
    const int head = BlockY() * unit.heads + unit.HeadOf(v);
    return Load(RowOf(task.q, unit.RowOf(v)) + int64_t{head} * task.kv.head_dim + d);
  }

  // ---- Scores ----

  // Where positions' keys and values begin: [2][warps][tile].
  TANDEM_DEVICE int64_t* PlacesOf(bool of_values) const {
    return reinterpret_cast<int64_t*>(shared_ + kAt.places) +
           ((of_values ? kAttendWarps : 0) + WarpIndex()) * kAttendTile;
  }
  TANDEM_DEVICE void FindPlaces() const {
    if (!IsIn(Lane())) return;
    const PagedKvView& kv = task_.kv;
    const int position = tile_ + Lane();
    const int64_t page =
        Load(kv.page_tables + int64_t{unit_.sequence} * kv.max_pages + position / kv.page_size);
    const int slot = position % kv.page_size;
    const int64_t block = kv.BlockOf(page, BlockY());
    Store(PlacesOf(false) + Lane(), block + slot);
    Store(PlacesOf(true) + Lane(),
          block + int64_t{slot} * KvElementWords(KvDType::kBF16, kv.head_dim));
  }

  // A score is one chain of instructions of 16 elements.
  TANDEM_DEVICE void Score(float (&scores)[kColumns][4]) const {
    const int words = KvElementWords(KvDType::kBF16, task_.kv.head_dim);
    const uint32_t* keys[kColumns];
    TANDEM_UNROLL
    for (int column = 0; column < kColumns; ++column) {
      const int place = column * 8 + Lane() / 4;
      keys[column] = nullptr;
      if (!IsIn(place)) continue;
      keys[column] = static_cast<const uint32_t*>(task_.kv.keys) + Load(PlacesOf(false) + place);
    }
    const auto* const queries = reinterpret_cast<const Words4*>(shared_ + kAt.queries) + Lane();
    TANDEM_UNROLL_BY(4)
    for (int step = 0; step < CeilDiv(task_.kv.head_dim, kDepth); ++step) {
      const Words4 query = Load(queries + step * kWarpSize);
      const int first = step * (kDepth / 2) + Lane() % 4;
      TANDEM_UNROLL
      for (int column = 0; column < kColumns; ++column) {
        uint32_t key[2];
        TANDEM_UNROLL
        for (int half = 0; half < 2; ++half) {
          const int w = first + half * 4;
          key[half] = 0;
          if (keys[column] == nullptr || w >= words) continue;
          key[half] = Load(keys[column] + int64_t{w} * task_.kv.page_size);
        }
        MultiplyTile(query, key, scores[column]);
      }
    }
  }

  // The weights of this lane's vector lane / 4 + 8 * half, 0 for what it does not see. They are
  // rounded before they are added up, so that they still add up to 1 in the end.
  TANDEM_DEVICE void Weigh(int half, const float (&scores)[kColumns][4]) {
    const int v = Lane() / 4 + 8 * half;
    positions_[half] = v < unit_.num_vectors ? unit_.PositionOf(v) : -1;
    const PositionRange sees = VisibleTo(positions_[half], task_.window);
    float largest = kNothingSeen;
    TANDEM_UNROLL
    for (int i = 0; i < 2 * kColumns; ++i) {
      if (!Sees(sees, i)) continue;
      largest = Larger(largest, scores[i / 2][2 * half + i % 2] * task_.scale);
    }
    largest = Larger(largest, ShuffleXor(largest, 1));
    largest = Larger(largest, ShuffleXor(largest, 2));
    float total = 0.0f;
    TANDEM_UNROLL
    for (int column = 0; column < kColumns; ++column) {
      float weights[2];
      TANDEM_UNROLL
      for (int i = 0; i < 2; ++i) {
        const float score = scores[column][2 * half + i] * task_.scale;
        weights[i] = Sees(sees, 2 * column + i) ? Exponential(score - largest) : 0.0f;
      }
      weights_[column][half] = PackBf16(weights[0], weights[1]);
      total = total + Bf16Low(weights_[column][half]);
      total = total + Bf16High(weights_[column][half]);
    }
    total = total + ShuffleXor(total, 1);
    total = total + ShuffleXor(total, 2);
    if (Lane() % 4 != 0) return;
    Store(shared_ + kAt.largest + WarpIndex() * kVectors + v, largest);
    Store(shared_ + kAt.totals + WarpIndex() * kVectors + v, total);
  }
  // Whether the position of a lane's i-th score of a vector is in the tile and seen.
  TANDEM_DEVICE bool Sees(const PositionRange& sees, int i) const {
    const int place = i / 2 * 8 + Lane() % 4 * 2 + i % 2;
    return IsIn(place) && sees.begin <= tile_ + place && tile_ + place < sees.end;
  }

  // ---- Values ----

  // A lane's places in the tile: of instruction i / 4 the positions 2t, 2t + 1, 2t + 8, 2t + 9.
  static constexpr int kPlaces = 4 * kDeep;
  TANDEM_DEVICE static int PlaceOf(int i) {
    return i / 4 * kDepth + Lane() % 4 * 2 + i % 2 + i / 2 % 2 * 8;
  }

  // 16 elements at a time. kEdge: some vector does not see all of the tile.
  template <bool kEdge>
  TANDEM_DEVICE void SumPass(int pass) const {
    const int words = KvElementWords(KvDType::kBF16, task_.kv.head_dim);
    const uint32_t* rows[kPlaces];
    TANDEM_UNROLL
    for (int i = 0; i < kPlaces; ++i) {
      rows[i] = nullptr;
      if (!IsIn(PlaceOf(i))) continue;
      rows[i] = static_cast<const uint32_t*>(task_.kv.values) + Load(PlacesOf(true) + PlaceOf(i));
    }
    float* const to = shared_ + kAt.sums + WarpIndex() * kVectors * kAt.sum_stride;
    TANDEM_UNROLL_BY(2)
    for (int d = 0; d < kPassDims; d += 16) {
      const int w = (pass * kPassDims + d) / 2 + Lane() / 4;
      float even[4] = {}, odd[4] = {};
      if (!is_empty() && pass * kPassDims + d < task_.kv.head_dim) {
        uint32_t values[kPlaces];
        TANDEM_UNROLL
        for (int i = 0; i < kPlaces; ++i) {
          values[i] = rows[i] != nullptr && w < words ? Load(rows[i] + w) : 0u;
        }
        if (kEdge && Vote(HasWildUnseen(values)) != 0) {
          MultiplyOneByOne(values, even, odd);
        } else {
          Multiply(values, even, odd);
        }
      }
      StoreSums(even, odd, to + d);
    }
  }

  TANDEM_DEVICE void Multiply(const uint32_t (&values)[kPlaces], float (&even)[4],
                              float (&odd)[4]) const {
    TANDEM_UNROLL
    for (int i = 0; i < kDeep; ++i) {
      const Words4 weights = {
          {weights_[2 * i][0], weights_[2 * i][1], weights_[2 * i + 1][0], weights_[2 * i + 1][1]}};
      uint32_t evens[2], odds[2];
      TANDEM_UNROLL
      for (int pair = 0; pair < 2; ++pair) {
        const uint32_t first = values[4 * i + 2 * pair], second = values[4 * i + 2 * pair + 1];
        evens[pair] = (first & 0xFFFFu) | second << 16;
        odds[pair] = first >> 16 | (second & 0xFFFF0000u);
      }
      MultiplyTile(weights, evens, even);
      MultiplyTile(weights, odds, odd);
    }
  }

  // Whether there are infinities or NaN, which a weight of 0 does not silence, among the values
  // that some vector does not see.
  TANDEM_DEVICE bool HasWildUnseen(const uint32_t (&values)[kPlaces]) const {
    const PositionRange for_all = SeenByAll(unit_, task_.window);
    bool is_wild = false;
    TANDEM_UNROLL
    for (int i = 0; i < kPlaces; ++i) {
      const int position = tile_ + PlaceOf(i);
      if (for_all.begin <= position && position < for_all.end) continue;
      is_wild =
          is_wild || (values[i] & 0x7F80u) == 0x7F80u || (values[i] & 0x7F800000u) == 0x7F800000u;
    }
    return is_wild;
  }

  // As Multiply where a weight of 0 times any value is 0: row after row, with what it sees.
  TANDEM_DEVICE void MultiplyOneByOne(const uint32_t (&values)[kPlaces], float (&even)[4],
                                      float (&odd)[4]) const {
    const int last = unit_.PositionOf(unit_.num_vectors - 1);
    for (int row = unit_.PositionOf(0); row <= last; ++row) {
      const PositionRange sees = VisibleTo(row, task_.window);
      uint32_t seen[kPlaces];
      TANDEM_UNROLL
      for (int i = 0; i < kPlaces; ++i) {
        const int position = tile_ + PlaceOf(i);
        seen[i] = sees.begin <= position && position < sees.end ? values[i] : 0u;
      }
      float row_even[4] = {}, row_odd[4] = {};
      Multiply(seen, row_even, row_odd);
      TANDEM_UNROLL
      for (int i = 0; i < 4; ++i) {
        if (positions_[i / 2] != row) continue;
        even[i] = row_even[i];
        odd[i] = row_odd[i];
      }
    }
  }

  // Elements 4t to 4t + 3 of vectors lane / 4 and 8 more.
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
  const AttendUnit& unit_;
  float* const shared_;
  const int tile_;
  const PositionRange in_tile_;
  int positions_[2];               // of this lane's two vectors, -1 for none
  uint32_t weights_[kColumns][2];  // of its vectors, as they lie in scores
};

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_ATTENTION_TENSOR_CUH_
