// Attention over the paged cache: the parts shared by the two ways to compute a tile
// (attention_plain.cu for caches of f32 and int8, attention_tensor.cu for bf16) and by the kernel
// for prompts (attention_prompt.cu).
//
// A unit is a set of query vectors (rows of one sequence times heads of one group), for which keys
// and values are read once. A split of 256 absolute positions has a tile of 32 for each warp. Tiles
// are merged in order within a split, and splits in order within the context. Positions that a
// vector does not see are left out rather than multiplied by 0, so the bits of a vector depend only
// on its own position.
#ifndef TANDEM_KERNELS_CUDA_ATTENTION_KERNELS_CUH_
#define TANDEM_KERNELS_CUDA_ATTENTION_KERNELS_CUH_

#include "kernels/cuda/launch_shapes.h"
#include "kernels/cuda/next_rows.cuh"
#include "kernels/cuda/warp_math.cuh"

namespace tandem::cuda {

inline constexpr float kNoScore = -__builtin_huge_valf();  // the largest of zero scores

// Returns the result of attention: 0 for a vector that sees no position. Adding 0 turns -0 into 0:
// a sum that underflows to -0 becomes 0 in any case if a tile that is not seen is added to it.
TANDEM_DEVICE float Quotient(float sum, float total) {
  return total == 0.0f ? 0.0f : sum / total + 0.0f;
}

// Returns the factor of a tile or split whose largest score is `score`: exp(score - largest), or 0
// if no position is seen.
TANDEM_DEVICE float Factor(float score, float largest) {
  return score == kNoScore ? 0.0f : Exponential(score - largest);
}

// Merges a split into the splits before it. Only here are these sums rounded.
struct RunningState {
  float largest = kNoScore;
  float total = 0.0f;

  // Sets the factors for the sums of values so far and for those of the split.
  TANDEM_DEVICE void Merge(float split_largest, float split_total, float* before, float* now) {
    const float new_largest = Larger(largest, split_largest);
    *before = Factor(largest, new_largest);
    *now = Factor(split_largest, new_largest);
    total = MulAdd(total, *before, split_total * *now);
    largest = new_largest;
  }
};

// The states of vectors in a split, in shared memory.
struct AttendStates {
  const float* largest;  // [tiles][vectors]
  const float* totals;   // [tiles][vectors]
  float* factors;        // [tiles][vectors]
  float* running;        // [2][vectors]: the largest score and the sum of weights so far
  float* merging;        // [2][vectors]: the factors of the sums so far and of the split's
};

// Computes the factors of vector v's tiles in the split, of the split, and of those before it.
template <int kVectors>
TANDEM_DEVICE void MergeSplit(const AttendStates& states, int v) {
  float largest = kNoScore;
  TANDEM_UNROLL
  for (int tile = 0; tile < kSplitTiles; ++tile) {
    largest = Larger(largest, Load(states.largest + tile * kVectors + v));
  }
  float total = 0.0f;
  TANDEM_UNROLL
  for (int tile = 0; tile < kSplitTiles; ++tile) {
    const int i = tile * kVectors + v;
    const float factor = Factor(Load(states.largest + i), largest);
    total = MulAdd(Load(states.totals + i), factor, total);
    Store(states.factors + i, factor);
  }
  RunningState state;
  state.largest = Load(states.running + v);
  state.total = Load(states.running + kVectors + v);
  float before, now;
  state.Merge(largest, total, &before, &now);
  Store(states.merging + v, before);
  Store(states.merging + kVectors + v, now);
  Store(states.running + v, state.largest);
  Store(states.running + kVectors + v, state.total);
}

// The query vectors of a block. Vector v of a sequence is row v / heads, head v % heads of a group.
struct AttendUnit {
  int sequence = -1;  // -1: the batch does not have this unit
  int first_row = 0;  // of the sequence, in the pass
  int first_vector = 0;
  int num_vectors = 0;
  int first_position = 0;  // of the sequence's first row
  int heads = 0;           // of a group

  TANDEM_DEVICE int RowOf(int v) const { return first_row + (first_vector + v) / heads; }
  TANDEM_DEVICE int HeadOf(int v) const { return (first_vector + v) % heads; }
  TANDEM_DEVICE int PositionOf(int v) const { return first_position + (first_vector + v) / heads; }
};

TANDEM_DEVICE AttendUnit FindUnit(const AttendTask& task, int index, int vectors) {
  AttendUnit unit;
  unit.heads = task.num_heads / task.kv.num_kv_heads;
  const Words4 listed = Load(reinterpret_cast<const Words4*>(task.units) + index);
  unit.sequence = static_cast<int>(listed.words[0]);
  if (unit.sequence < 0) return unit;
  const int num_rows = static_cast<int>(listed.words[2]);
  unit.first_row = static_cast<int>(listed.words[1]);
  unit.first_vector = static_cast<int>(listed.words[3]);
  const int left = num_rows * unit.heads - unit.first_vector;
  unit.num_vectors = left < vectors ? left : vectors;
  unit.first_position = Load(task.kv.lengths + unit.sequence) - num_rows;
  return unit;
}

// The offsets of a position's key and value, in words.
struct KvPlace {
  int64_t key;
  int64_t value;
};
TANDEM_DEVICE KvPlace FindPlace(const PagedKvView& kv, int sequence, int position) {
  const int slot = position % kv.page_size;
  const int64_t block = kv.BlockOf(PageOf(kv, sequence, position), BlockY());
  return {block + slot, block + int64_t{slot} * KvElementWords(kv.dtype, kv.head_dim)};
}

// Positions [begin, end).
struct PositionRange {
  int begin;
  int end;

  TANDEM_DEVICE bool is_empty() const { return begin >= end; }
};
TANDEM_DEVICE PositionRange VisibleTo(int position, const AttentionForm& form) {
  const int begin = position - form.window + 1;
  return {begin > form.first ? begin : form.first, position + 1};
}

// The positions that at least one vector of a unit sees, and those that every vector sees.
TANDEM_DEVICE PositionRange SeenByAny(const AttendUnit& unit, const AttentionForm& form) {
  return {VisibleTo(unit.PositionOf(0), form).begin, unit.PositionOf(unit.num_vectors - 1) + 1};
}
TANDEM_DEVICE PositionRange SeenByAll(const AttendUnit& unit, const AttentionForm& form) {
  return {VisibleTo(unit.PositionOf(unit.num_vectors - 1), form).begin, unit.PositionOf(0) + 1};
}
// Returns those of the `count` positions from `tile` on that are in `all`. May be empty.
TANDEM_DEVICE PositionRange InTile(const PositionRange& all, int tile, int count = kAttendTile) {
  return {tile > all.begin ? tile : all.begin, tile + count < all.end ? tile + count : all.end};
}
TANDEM_DEVICE bool Includes(const PositionRange& outer, const PositionRange& inner) {
  return outer.begin <= inner.begin && inner.end <= outer.end;
}

// Returns the slots of a row and head: the results of the step's splits, from first_split on.
TANDEM_DEVICE float* PartsOfRow(const AttendTask& task, int64_t row, int head) {
  return task.parts + (row * task.num_heads + head) * NumPartSlots(task) * (task.kv.head_dim + 2);
}

// Stores a result. The lanes of a warp have neighbouring columns; only those for which `is_in`
// holds have one.
TANDEM_DEVICE void StoreResult(const AttendTask& task, int row, int col, float result, bool is_in) {
  if (task.out.data != nullptr) {
    if (is_in) Store(RowOf(task.out, row) + col, result);
  } else {
    StoreColumns(task.next, task.out.rows, row, col, result, is_in);
  }
}

// Attention except for a warp's tile. Tile finds positions, weighs them and sums values. It is
// constructed before WaitForKernelsBefore, so its constructor must not read memory that kernels
// write. It defines its numbers of vectors and elements (kVectors, kHeadDim), how many elements of
// values it sums in one pass (kPassDims), and the layout of shared memory (kAt).
template <typename Tile>
struct AttendKernel {
  using Task = AttendTask;
  static constexpr int kThreads = kAttendWarps * kWarpSize;
  static constexpr int kVectors = Tile::kVectors;
  static constexpr int kHeadDim = Tile::kHeadDim;
  static constexpr int kPassDims = Tile::kPassDims;
  static constexpr AttendShared kAt = Tile::kAt;
  // Elements of the running sums of values that a thread keeps, for each pass.
  static constexpr int kPassKept = kVectors * kPassDims / kThreads;
  static constexpr int kPasses = kHeadDim / kPassDims;
  static constexpr int kKept = kPasses * kPassKept;
  static_assert(kPassKept * kThreads == kVectors * kPassDims && kPasses * kPassDims == kHeadDim);

  TANDEM_DEVICE static void Run(const Task& task, unsigned char* bytes) {
    auto* const shared = reinterpret_cast<float*>(bytes);
    const AttendUnit unit = FindUnit(task, BlockX(), kVectors);
    const bool has_unit = unit.sequence >= 0;
    const PositionRange all = has_unit ? SeenByAny(unit, task.form) : PositionRange{0, 0};
    const int first =
        task.parts != nullptr ? task.first_split + BlockZ() : all.begin / kSplitPositions;
    float kept[kKept] = {};
    int split = first;
    do {
      Tile tile(task, unit, all, TileOf(split), shared);
      if (split == first) {
        WaitForKernelsBefore();  // kernels do not write the tables that were read so far
        if (!has_unit) return;
        // A block that has all splits goes on, to store zeros for rows that see no position.
        if (task.parts != nullptr &&
            InTile(all, split * kSplitPositions, kSplitPositions).is_empty()) {
          return;
        }
        LoadQueries(task, unit, shared);
      }
      AddSplit(tile, shared, kept);
    } while (task.parts == nullptr && ++split * kSplitPositions < all.end);
    if (task.parts != nullptr) return StoreParts(task, unit, BlockZ(), shared, kept);
    StoreOut(task, unit, shared, kept);
  }

 private:
  TANDEM_DEVICE static AttendStates StatesOf(float* shared) {
    return {shared + kAt.largest, shared + kAt.totals, shared + kAt.factors, shared + kAt.running,
            shared + kAt.merging};
  }

  // Loads the queries, and initialises the running states.
  TANDEM_DEVICE static void LoadQueries(const Task& task, const AttendUnit& unit, float* shared) {
    Tile::LoadQueries(task, unit, shared);
    if (ThreadIndex() < kVectors) {
      Store(shared + kAt.running + ThreadIndex(), kNoScore);
      Store(shared + kAt.running + kVectors + ThreadIndex(), 0.0f);
    }
    Barrier();
  }

  TANDEM_DEVICE static int TileOf(int split) {
    return split * kSplitPositions + WarpIndex() * kAttendTile;
  }

  // Adds a split to the running states and to the running sums of values.
  TANDEM_DEVICE static void AddSplit(Tile& tile, float* shared, float (&kept)[kKept]) {
    tile.Weigh();
    TANDEM_UNROLL
    for (int pass = 0; pass < kPasses; ++pass) {
      tile.SumValues(pass);
      Barrier();
      if (pass == 0) {
        if (ThreadIndex() < kVectors) MergeSplit<kVectors>(StatesOf(shared), ThreadIndex());
        Barrier();
      }
      TANDEM_UNROLL
      for (int k = 0; k < kPassKept; ++k) {
        const int i = ThreadIndex() + k * kThreads;
        const int v = i / kPassDims;
        float& sum = kept[pass * kPassKept + k];
        sum =
            MulAdd(sum, Load(shared + kAt.merging + v),
                   SplitSum(shared, v, i % kPassDims) * Load(shared + kAt.merging + kVectors + v));
      }
      Barrier();
    }
  }

  // Tiles that a vector does not see hold sums of 0 and have a factor of 0.
  TANDEM_DEVICE static float SplitSum(const float* shared, int v, int d) {
    float sum = 0.0f;
    TANDEM_UNROLL
    for (int warp = 0; warp < kAttendWarps; ++warp) {
      const int i = warp * kVectors + v;
      sum = MulAdd(Load(shared + kAt.sums + i * kAt.sum_stride + d), Load(shared + kAt.factors + i),
                   sum);
    }
    return sum;
  }

  // Calls store(v, d, sum, whether the unit has the vector and the element) for each element that
  // this thread keeps.
  template <typename StoreSum>
  TANDEM_DEVICE static void ForKept(const Task& task, const AttendUnit& unit,
                                    const float (&kept)[kKept], StoreSum store) {
    TANDEM_UNROLL
    for (int k = 0; k < kKept; ++k) {
      const int i = ThreadIndex() + k % kPassKept * kThreads;
      const int v = i / kPassDims, d = k / kPassKept * kPassDims + i % kPassDims;
      store(v, d, kept[k], v < unit.num_vectors && d < task.kv.head_dim);
    }
  }

  TANDEM_DEVICE static void StoreOut(const Task& task, const AttendUnit& unit, const float* shared,
                                     const float (&kept)[kKept]) {
    ForKept(task, unit, kept, [&](int v, int d, float sum, bool is_in) {
      const int head = BlockY() * unit.heads + unit.HeadOf(v);
      const float total = Load(shared + kAt.running + kVectors + v);
      StoreResult(task, unit.RowOf(v), head * task.kv.head_dim + d, Quotient(sum, total), is_in);
    });
  }

  TANDEM_DEVICE static float* PartsOf(const Task& task, const AttendUnit& unit, int v, int slot) {
    const int head = BlockY() * unit.heads + unit.HeadOf(v);
    const int64_t row = task.decode_rows == 0
                            ? unit.RowOf(v)
                            : unit.sequence * task.decode_rows + (unit.RowOf(v) - unit.first_row);
    return PartsOfRow(task, row, head) + int64_t{slot} * (task.kv.head_dim + 2);
  }
  TANDEM_DEVICE static void StoreParts(const Task& task, const AttendUnit& unit, int slot,
                                       const float* shared, const float (&kept)[kKept]) {
    ForKept(task, unit, kept, [&](int v, int d, float sum, bool is_in) {
      if (is_in) Store(PartsOf(task, unit, v, slot) + 2 + d, sum);
    });
    const int v = ThreadIndex();
    if (v >= unit.num_vectors) return;
    Store(PartsOf(task, unit, v, slot), Load(shared + kAt.running + v));
    Store(PartsOf(task, unit, v, slot) + 1, Load(shared + kAt.running + kVectors + v));
  }
};

// Merges the splits of a row and head, in order. Between steps the state is in a slot.
struct MergeSplitsKernel {
  using Task = AttendTask;
  static constexpr int kThreads = kMergeThreads;

  TANDEM_DEVICE static void Run(const Task& task, unsigned char*) {
    const int head = KeptInRegister(BlockY());
    int row = BlockX();
    RowPlace place = {-1, 0};
    if (task.decode_rows == 0) {
      place = PlaceOf(task.rows, task.kv.lengths, row);
    } else {
      const int sequence = BlockX() / task.decode_rows;
      const int begin = Load(task.rows.starts + sequence);
      const int end = Load(task.rows.starts + sequence + 1);
      row = begin + BlockX() % task.decode_rows;
      const int vectors = (end - begin) * (task.num_heads / task.kv.num_kv_heads);
      if (row < end && vectors < kPromptVectors) {
        place = {sequence, Load(task.kv.lengths + sequence) - (end - row)};
      }
    }
    WaitForKernelsBefore();
    if (place.sequence < 0) return;
    const PositionRange visible = VisibleTo(place.position, task.form);
    const int begin = visible.begin / kSplitPositions;
    const int end = visible.is_empty() ? 0 : CeilDiv(visible.end, kSplitPositions);
    const int step_end = task.first_split + NumSplitsOfStep(task);
    const bool is_last = step_end == task.num_splits;
    const int slot_floats = task.kv.head_dim + 2;
    float* const parts = PartsOfRow(task, KeptInRegister(BlockX()), head);
    // Threads read the state of the previous step while others already store the next one.
    const int turn = task.first_split / task.part_splits % 2;
    float* const states = parts + int64_t{task.part_splits} * slot_floats;
    const float* const before_step = states + (1 - turn) * slot_floats;
    float* const after_step = states + turn * slot_floats;
    // All lanes of a warp go on together, because they exchange results.
    for (int first = WarpIndex() * kWarpSize; first < task.kv.head_dim; first += kThreads) {
      const bool is_in = first + Lane() < task.kv.head_dim;
      const int d = is_in ? first + Lane() : first;
      struct Part {
        float largest, total, sum;
      };
      const auto part_of = [&](int split) {
        const float* const part = parts + int64_t{split - task.first_split} * slot_floats;
        return Part{Load(part), Load(part + 1), Load(part + 2 + d)};
      };
      RunningState state;
      float sum = 0.0f;
      if (task.first_split > 0) {
        state.largest = Load(before_step);
        state.total = Load(before_step + 1);
        sum = Load(before_step + 2 + d);
      }
      ForEach(begin > task.first_split ? begin : task.first_split, end < step_end ? end : step_end,
              1, part_of, [&](int, const Part& part) {
                float before, now;
                state.Merge(part.largest, part.total, &before, &now);
                sum = MulAdd(sum, before, part.sum * now);
              });
      if (is_last) {
        StoreResult(task, row, head * task.kv.head_dim + first + Lane(), Quotient(sum, state.total),
                    is_in);
        continue;
      }
      if (!is_in) continue;
      Store(after_step + 2 + d, sum);
      if (d > 0) continue;
      Store(after_step, state.largest);
      Store(after_step + 1, state.total);
    }
  }
};

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_ATTENTION_KERNELS_CUH_
