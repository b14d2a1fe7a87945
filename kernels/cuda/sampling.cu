// Distributions of rows of logits, and the draws by which drafts are judged. One block per row or
// slot. Sums have the order of kernels/row_sums.h, so that the bits are the same as on the host.
#include <cstring>
#include <cub/block/block_scan.cuh>

#include "base/philox_rounds.h"
#include "kernels/cuda/block_math.cuh"
#include "kernels/cuda/launch_shapes.h"
#include "kernels/exponential_series.h"
#include "kernels/row_sums.h"

namespace tandem::cuda {

template <typename T>
TANDEM_DEVICE T LoadTask(const T* task) {
  constexpr int kWords4 = sizeof(T) / sizeof(Words4);
  Words4 words[kWords4];
  TANDEM_UNROLL
  for (int i = 0; i < kWords4; ++i) words[i] = Load(reinterpret_cast<const Words4*>(task) + i);
  T value;
  memcpy(&value, words, sizeof(T));
  return value;
}

// Returns exp(x) with the same bits as kernels/cpu/exponential.h.  REQUIRES: x is not NaN.
TANDEM_DEVICE float SamplingExp(float x) {
  x = x > kExpLowest ? x : kExpLowest;
  x = x < kExpHighest ? x : kExpHighest;
  const float n = MulAdd(x, kLog2OfE, kIntegerRounder) - kIntegerRounder;
  float r = MulAdd(n, kMinusLn2High, x);
  r = MulAdd(n, kMinusLn2Low, r);
  float p = kExpTerm7;
  p = MulAdd(p, r, kExpTerm6);
  p = MulAdd(p, r, kExpTerm5);
  p = MulAdd(p, r, kExpTerm4);
  p = MulAdd(p, r, kExpTerm3);
  p = MulAdd(p, r, kExpTerm2);
  p = 1.0f + MulAdd(r * r, p, r);
  // Multiply with two factors, because 2^n may be subnormal.
  const int whole = static_cast<int>(n);
  const int half = whole >> 1;
  return p * BitsToFloat(static_cast<uint32_t>(half + 127) << 23) *
         BitsToFloat(static_cast<uint32_t>(whole - half + 127) << 23);
}

// Calls use(v, load(v)) for every v in [0, size), divided among the block's threads.
template <typename LoadAt, typename Use>
TANDEM_DEVICE void ForRow(int size, const LoadAt& load, const Use& use) {
  ForEach(ThreadIndex(), size, kSamplingThreads, load, use);
}

// Returns, in every thread, the sum over [0, size) of term(v, load(v)), in the order of row_sums.h.
// Calls `term` once for each v.
template <typename T, typename LoadAt, typename Term>
TANDEM_DEVICE T SumOfRow(int size, SamplingScratch* scratch, const LoadAt& load, const Term& term) {
  constexpr int kChunks = kSamplingThreads / kSumLanes;  // at a time
  static_assert(kChunks * sizeof(T) <= sizeof(scratch->sums), "one sum for each chunk");
  auto* const sums = reinterpret_cast<T*>(scratch->sums);
  T total = 0;
  for (int first = 0; first < size; first += kChunks * kSumChunk) {
    const int begin = first + ThreadIndex() / kSumLanes * kSumChunk;
    const int end = begin + kSumChunk < size ? begin + kSumChunk : size;
    T sum = 0;
    ForEach(begin + ThreadIndex() % kSumLanes, end, kSumLanes, load,
            [&](int v, const auto& loaded) { sum = sum + term(v, loaded); });
    TANDEM_UNROLL
    for (int mask = kSumLanes / 2; mask > 0; mask /= 2) sum = sum + ShuffleXor(sum, mask);
    if (ThreadIndex() % kSumLanes == 0) Store(sums + ThreadIndex() / kSumLanes, sum);
    Barrier();
    for (int c = 0; c < kChunks && first + c * kSumChunk < size; ++c)
      total = total + Load(sums + c);
    Barrier();
  }
  return total;
}

// Returns the largest entry of a row, in every thread.
template <typename LoadAt>
TANDEM_DEVICE Largest LargestOfRow(int size, SamplingScratch* scratch, const LoadAt& load) {
  Largest largest = Largest::Nothing();
  ForRow(size, load, [&](int v, float value) { largest.See(value, v); });
  return LargestOfBlock(largest, &scratch->of_block);
}

// The entries of a row that are kept: those with larger keys, and the first `num_equal` with `key`.
struct Cut {
  bool cuts;
  uint32_t key;
  uint64_t num_equal;
  uint64_t all_equal;
};

// Prefix sums of integers over the block's threads.
using Scan = cub::BlockScan<uint64_t, kSamplingThreads, cub::BLOCK_SCAN_WARP_SCANS>;

// Sums of 64 bits by digit, in copies of which each warp adds to one. Devices add 32 bits in shared
// memory at once, but 64 in a loop of exchanges, so a sum has two halves, and a carry of the low
// one is added to the high one. Sums modulo 2^64 are exact in any order.
template <int kCopies, int kGroups>
struct Histogram {
  uint32_t* words;  // [copies][halves][digits]

  static constexpr int kCopyWords = 2 * kSamplingDigits;

  TANDEM_DEVICE void Clear() const {
    for (int i = ThreadIndex(); i < kCopies * kCopyWords; i += kSamplingThreads) {
      Store(words + i, uint32_t{0});
    }
  }
  // Adds the units of the lanes that count, where `digit` is known. Called by whole warps. Entries
  // of a warp that share a digit are added first, because most entries share a few digits.
  template <typename Row>
  TANDEM_DEVICE void Add(bool counts, uint32_t digit, uint64_t units) const {
    uint32_t* const copy = words + WarpIndex() % kCopies * kCopyWords;
    uint32_t left = Vote(counts);
    for (int group = 0; group < kGroups && left != 0; ++group) {
      const int first = NumOnes((left & -left) - 1);
      const uint32_t shared_digit = ShuffleFrom(digit, first);
      const bool shares = counts && digit == shared_digit;
      const uint32_t sharing = Vote(shares);
      const uint64_t sum = Row::SumOfLanes(sharing, shares ? units : 0);
      if (Lane() == first) AddHalves(copy + digit, sum);
      counts = counts && !shares;
      left &= ~sharing;
    }
    if (counts) AddHalves(copy + digit, units);
  }
  TANDEM_DEVICE uint64_t Of(int digit) const {
    uint64_t sum = 0;
    for (int copy = 0; copy < kCopies; ++copy) {
      const uint32_t* const low = words + copy * kCopyWords + digit;
      sum += uint64_t{Load(low + kSamplingDigits)} << 32 | Load(low);
    }
    return sum;
  }

 private:
  TANDEM_DEVICE static void AddHalves(uint32_t* low, uint64_t units) {
    const auto added = static_cast<uint32_t>(units);
    const uint32_t sum = AtomicAdd(low, added) + added;
    const uint32_t high = static_cast<uint32_t>(units >> 32) + (sum < added ? 1 : 0);
    if (high != 0) AtomicAdd(low + kSamplingDigits, high);
  }
};

// Sums the histogram from the highest digit down, and finds the digit at which the sum reaches
// `enough`. Stores in scratch->found that digit, the sum of the digits above it, and its own sum.
// Returns false if the whole sum is less than `enough`.
template <typename Sums>
TANDEM_DEVICE bool FindDigit(uint64_t enough, const Sums& sums, SamplingScratch* scratch) {
  const int digit = kSamplingDigits - 1 - ThreadIndex();
  const uint64_t sum = digit >= 0 ? sums.Of(digit) : 0;
  uint64_t above, all;
  Scan(StorageOf<Scan>(&scratch->of_block)).ExclusiveSum(sum, above, all);
  if (above < enough && above + sum >= enough) {
    Store(scratch->found, static_cast<uint64_t>(digit));
    Store(scratch->found + 1, above);
    Store(scratch->found + 2, sum);
  }
  Barrier();
  return all >= enough;
}

// Returns the cut at which the largest entries (the first ones among equals) reach `enough` units.
// The units of an entry depend only on its key: see UnitsOf. The cut keeps everything if all
// entries together do not reach `enough`.
template <typename Row, typename Sums>
TANDEM_DEVICE Cut FindCut(const Row& row, int size, uint64_t enough, const Sums& sums,
                          SamplingScratch* scratch) {
  constexpr int kDigitBits = 8;
  constexpr int kBatch = 4;  // loads of a thread in flight
  uint32_t key = 0;          // the digits found so far
  uint64_t above = 0;
  uint64_t here = 0;
  for (int shift = 32 - kDigitBits; shift >= 0; shift -= kDigitBits) {
    sums.Clear();
    Barrier();
    // All threads of a warp add together, also after the end of the row.
    for (int first = ThreadIndex(); first - Lane() < size; first += kBatch * kSamplingThreads) {
      uint32_t keys[kBatch];
      TANDEM_UNROLL
      for (int i = 0; i < kBatch; ++i) {
        const int v = first + i * kSamplingThreads;
        keys[i] = v < size ? row.KeyOf(v) : 0;
      }
      TANDEM_UNROLL
      for (int i = 0; i < kBatch; ++i) {
        const bool is_here = first + i * kSamplingThreads < size &&
                             (shift + kDigitBits == 32 || keys[i] >> (shift + kDigitBits) == key);
        const uint64_t units = is_here ? Row::UnitsOf(keys[i]) : 0;
        sums.template Add<Row>(units != 0, (keys[i] >> shift) % kSamplingDigits, units);
      }
    }
    Barrier();
    if (!FindDigit(enough - above, sums, scratch)) return {false, 0, 0, 0};
    key = key << kDigitBits | static_cast<uint32_t>(Load(scratch->found));
    above += Load(scratch->found + 1);
    here = Load(scratch->found + 2);
  }
  const uint64_t units = Row::UnitsOf(key);
  return {true, key, (enough - above + units - 1) / units, here / units};
}

// Calls drop(v) for each entry that is not kept.
template <typename Row, typename Drop>
TANDEM_DEVICE void ApplyCut(const Cut& cut, const Row& row, int size, SamplingScratch* scratch,
                            const Drop& drop) {
  if (!cut.cuts) return;
  if (cut.num_equal >= cut.all_equal) {
    ForRow(
        size, [&](int v) { return row.KeyOf(v); },
        [&](int v, uint32_t key) {
          if (key < cut.key) drop(v);
        });
    Barrier();
    return;
  }
  uint64_t num_before = 0;  // equal entries before `first`
  for (int first = 0; first < size; first += kSamplingThreads) {
    const int v = first + ThreadIndex();
    const uint32_t key = v < size ? row.KeyOf(v) : 0;
    const bool is_equal = v < size && key == cut.key;
    uint64_t rank, count;
    Scan(StorageOf<Scan>(&scratch->of_block)).ExclusiveSum(is_equal ? 1 : 0, rank, count);
    Barrier();
    if (v < size && (key < cut.key || (is_equal && num_before + rank >= cut.num_equal))) drop(v);
    num_before += count;
  }
  Barrier();
}

// Logits. Keys have the order of the values; 0 and -0 have the same key.
struct LogitRow {
  const float* values;
  TANDEM_DEVICE uint32_t KeyOf(int v) const {
    const uint32_t bits = FloatToBits(Load(values + v) + 0.0f);
    return bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
  }
  TANDEM_DEVICE static uint64_t UnitsOf(uint32_t) { return 1; }
  // Returns the sum of the units of the lanes of `sharing`; the others give 0.
  TANDEM_DEVICE static uint64_t SumOfLanes(uint32_t sharing, uint64_t) { return NumOnes(sharing); }
};

struct ProbabilityRow {
  const float* values;
  TANDEM_DEVICE uint32_t KeyOf(int v) const { return FloatToBits(Load(values + v)); }
  TANDEM_DEVICE static uint64_t UnitsOf(uint32_t key) { return InUnits(BitsToFloat(key)); }
  // In pieces whose sums fit into 32 bits.
  TANDEM_DEVICE static uint64_t SumOfLanes(uint32_t, uint64_t units) {
    constexpr int kPieceBits = 27;
    constexpr uint32_t kPiece = (1u << kPieceBits) - 1;
    uint64_t sum = 0;
    TANDEM_UNROLL
    for (int shift = 0; shift < 64; shift += kPieceBits) {
      const uint32_t piece = static_cast<uint32_t>(units >> shift) & kPiece;
      sum += static_cast<uint64_t>(cuda::SumOfLanes(piece)) << shift;
    }
    return sum;
  }
};

template <int kCopies, int kGroups>
struct DistributionKernel {
  using Task = DistributionsTask;
  static constexpr int kThreads = kSamplingThreads;

  TANDEM_DEVICE static void Run(const Task& task, unsigned char* shared) {
    WaitForKernelsBefore();
    auto* const scratch = reinterpret_cast<SamplingScratch*>(shared);
    const Sums sums{reinterpret_cast<uint32_t*>(shared + sizeof(SamplingScratch))};
    const RowTask row = LoadTask(task.rows + BlockX());
    const auto load = [&](int v) { return Load(row.logits + v); };
    const float logit = LargestOfRow(row.size, scratch, load).value;
    const float largest = logit * row.inverse_temperature;
    const RowState state = !IsFinite(logit)     ? RowState::kNoDistribution
                           : !IsFinite(largest) ? RowState::kOverflows
                                                : RowState::kDistribution;
    if (ThreadIndex() == 0) Store(task.states + BlockX(), state);
    if (state != RowState::kDistribution) return;

    const float* logits = row.logits;
    if (0 < row.top_k && row.top_k < row.size) {
      KeepTopK(row, sums, scratch);
      logits = row.probs;
    }
    const float sum = SumOfRow<float>(
        row.size, scratch, [&](int v) { return Load(logits + v); },
        [&](int v, float value) {
          const float weight = SamplingExp(value * row.inverse_temperature - largest);
          Store(row.probs + v, weight);
          return weight;
        });
    const float most = Multiply(row, 1.0f / sum, scratch);
    if (row.enough == 0 && !(row.min_p > 0.0f)) return;
    if (row.enough != 0) {
      const ProbabilityRow probs{row.probs};
      const Cut cut = FindCut(probs, row.size, row.enough, sums, scratch);
      ApplyCut(cut, probs, row.size, scratch, [&](int v) { Store(row.probs + v, 0.0f); });
    }
    Multiply(row, InverseOfUnits(KeepMinP(row, row.min_p * most, scratch)), scratch);
  }

 private:
  using Sums = Histogram<kCopies, kGroups>;

  // Copies the logits to `probs`, with -inf for those that are not kept.
  TANDEM_DEVICE static void KeepTopK(const RowTask& row, const Sums& sums,
                                     SamplingScratch* scratch) {
    const LogitRow logits{row.logits};
    const Cut cut = FindCut(logits, row.size, static_cast<uint64_t>(row.top_k), sums, scratch);
    if (row.probs != row.logits) {
      ForRow(
          row.size, [&](int v) { return Load(row.logits + v); },
          [&](int v, float logit) { Store(row.probs + v, logit); });
      Barrier();
    }
    ApplyCut(cut, logits, row.size, scratch,
             [&](int v) { Store(row.probs + v, BitsToFloat(kMinusInfinity)); });
  }

  // Multiplies a row and returns the largest product.
  TANDEM_DEVICE static float Multiply(const RowTask& row, float factor, SamplingScratch* scratch) {
    float most = 0.0f;
    ForRow(
        row.size, [&](int v) { return Load(row.probs + v); },
        [&](int v, float weight) {
          const float product = weight * factor;
          Store(row.probs + v, product);
          most = Larger(most, product);
        });
    return OfBlock(most, &scratch->of_block, [](float a, float b) { return Larger(a, b); });
  }

  // Sets probabilities below `floor` to 0 and returns the units of the rest.
  TANDEM_DEVICE static uint64_t KeepMinP(const RowTask& row, float floor,
                                         SamplingScratch* scratch) {
    uint64_t units = 0;
    ForRow(
        row.size, [&](int v) { return Load(row.probs + v); },
        [&](int v, float p) {
          if (p < floor) Store(row.probs + v, 0.0f);
          units += p < floor ? 0 : InUnits(p);
        });
    return OfBlock(units, &scratch->of_block, [](uint64_t a, uint64_t b) { return a + b; });
  }
};

// The distribution that a slot draws from.
struct SlotWeights {
  SlotTask slot;
  double scale;
  int num_common;  // entries that the rows of target and draft share; 0 without a row of the draft

  TANDEM_DEVICE SlotWeights(const SlotTask& given, double scaled) : slot(given), scale(scaled) {
    const bool is_row = slot.draft_only < 0 && slot.draft != nullptr;
    num_common = !is_row                              ? 0
                 : slot.draft_size < slot.target_size ? slot.draft_size
                                                      : slot.target_size;
  }

  TANDEM_DEVICE double Target(int v) const { return scale * Load(slot.target + v); }
  TANDEM_DEVICE static double Positive(double x) { return x > 0.0 ? x : 0.0; }
  // The residual against the draft's row. Ignores a draft of a single token.
  TANDEM_DEVICE double OfRow(int v) const {
    const double target = Target(v);
    return Positive(v < num_common ? target - Load(slot.draft + v) : target);
  }
  TANDEM_DEVICE double Residual(int v) const {
    return v == slot.draft_only ? Positive(Target(v) - 1.0) : OfRow(v);
  }
  TANDEM_DEVICE float operator()(int v) const {
    return slot.draw == SlotDraw::kTarget ? Load(slot.target + v) : static_cast<float>(Residual(v));
  }
};

struct SlotKernel {
  using Task = SlotsTask;
  static constexpr int kThreads = kSamplingThreads;

  TANDEM_DEVICE static void Run(const Task& task, unsigned char* shared) {
    WaitForKernelsBefore();
    auto* const scratch = reinterpret_cast<SamplingScratch*>(shared);
    const int index = task.begin + BlockX();
    const SlotTask slot = LoadTask(task.slots + index);
    SlotAnswer* const answer = task.answers + index;
    if (slot.draw == SlotDraw::kLargest) {
      const auto load = [&](int v) { return Load(slot.target + v); };
      const Largest largest = LargestOfRow(slot.target_size, scratch, load);
      if (ThreadIndex() == 0) {
        Store(&answer->drawn, IsFinite(largest.value) ? largest.index : -1);
      }
      return;
    }
    SlotWeights weights(
        slot, slot.draw == SlotDraw::kBlockResidual ? Survival(task, slot.first_slot, index) : 1.0);
    double mass = 0.0;
    if (slot.draw != SlotDraw::kTarget) mass = ResidualMass(weights, scratch);
    int drawn = Race(weights, scratch);
    if (drawn < 0 && slot.draw != SlotDraw::kTarget) {
      weights.slot.draw = SlotDraw::kTarget;
      drawn = Race(weights, scratch);
    }
    if (ThreadIndex() > 0) return;
    Store(&answer->residual_mass, mass);
    Store(&answer->target, TargetOf(slot));
    Store(&answer->draft, DraftOf(slot));
    Store(&answer->drawn, drawn);
  }

  // Probabilities of the slot's token; 0 outside of the rows.
  TANDEM_DEVICE static float TargetOf(const SlotTask& slot) {
    const bool is_known = slot.token >= 0 && slot.token < slot.target_size;
    return is_known ? Load(slot.target + slot.token) : 0.0f;
  }
  TANDEM_DEVICE static float DraftOf(const SlotTask& slot) {
    if (slot.draft_only >= 0) return slot.token == slot.draft_only ? 1.0f : 0.0f;
    const bool is_known = slot.token >= 0 && slot.token < slot.draft_size;
    return is_known ? Load(slot.draft + slot.token) : 0.0f;
  }

  // Returns the probability that slots [first, end) survive, given the draft
  // (verify/acceptance.cc).
  TANDEM_DEVICE static double Survival(const Task& task, int first, int end) {
    double survival = 1.0;
    for (int i = first; i < end; ++i) {
      const SlotTask before = LoadTask(task.slots + i);
      const double p = TargetOf(before);
      const double q = DraftOf(before);
      const double product = survival * (p / q);
      survival = product < 1.0 ? product : 1.0;
    }
    return survival;
  }

  TANDEM_DEVICE static double ResidualMass(const SlotWeights& weights, SamplingScratch* scratch) {
    const SlotTask& slot = weights.slot;
    const double mass = SumOfRow<double>(
        slot.target_size, scratch, [&](int v) { return weights.OfRow(v); },
        [](int, double part) { return part; });
    if (slot.draft_only < 0 || slot.draft_only >= slot.target_size) return mass;
    const double counted_whole = weights.Target(slot.draft_only);
    if (!(counted_whole > 0.0)) return mass;
    return mass - counted_whole + weights.Residual(slot.draft_only);
  }

  // Same as DrawFromWeights (model/sampling.h). Returns the result in every thread.
  TANDEM_DEVICE static int Race(const SlotWeights& weights, SamplingScratch* scratch) {
    const SlotTask& slot = weights.slot;
    const Largest favourite = LargestOfRow(slot.target_size, scratch, weights);
    if (!(favourite.value > 0.0f)) return -1;
    constexpr float kSlack = 1.000001f;
    const uint32_t bits = Bits(slot, favourite.index / 4)[favourite.index % 4];
    const float bound = PhiloxExponential(bits) / favourite.value * kSlack;

    Largest fastest = Largest::Nothing();  // of negated times
    const int num_blocks = (slot.target_size + 3) / 4;
    for (int block = ThreadIndex(); block < num_blocks; block += kThreads) {
      float some[4];
      float any = 0.0f;
      TANDEM_UNROLL
      for (int j = 0; j < 4; ++j) {
        some[j] = 4 * block + j < slot.target_size ? weights(4 * block + j) : 0.0f;
        any = Larger(any, some[j]);
      }
      if (!(any > 0.0f)) continue;
      const std::array<uint32_t, 4> words = Bits(slot, block);
      TANDEM_UNROLL
      for (int j = 0; j < 4; ++j) {
        if (!(some[j] > 0.0f) || !(PhiloxUniform(words[j]) <= some[j] * bound)) continue;
        fastest.See(-(PhiloxExponential(words[j]) / some[j]), 4 * block + j);
      }
    }
    fastest = LargestOfBlock(fastest, &scratch->of_block);
    return IsFinite(fastest.value) ? fastest.index : favourite.index;
  }

  TANDEM_DEVICE static std::array<uint32_t, 4> Bits(const SlotTask& slot, int lane) {
    return PhiloxBlock(
        {slot.counter[0], slot.counter[1], static_cast<uint32_t>(lane), slot.counter[3]}, slot.key);
  }
};

struct TakeDrawnKernel {
  using Task = TakeDrawnTask;
  static constexpr int kThreads = kRowThreads;

  TANDEM_DEVICE static void Run(const Task& task, unsigned char*) {
    WaitForKernelsBefore();
    const int i = BlockX() * kThreads + ThreadIndex();
    if (i >= task.count) return;
    const int source = Load(task.sources + i);
    if (source >= 0) Store(task.ids + i, Load(&task.answers[source].drawn));
  }
};

Error Launch(const DistributionsTask& task, Stream stream) {
  return EnqueueVariant<kNumDistributionVariants>(task.variant, [&](auto variant) {
    constexpr DistributionVariant kOf = kDistributionVariants[decltype(variant)::value];
    return Enqueue<DistributionKernel<kOf.copies, kOf.groups>>(
        task, DistributionShape(task.num_rows, kOf), stream);
  });
}

Error Launch(const SlotsTask& task, Stream stream) {
  return Enqueue<SlotKernel>(task, SlotShape(task.num_slots), stream);
}

Error Launch(const TakeDrawnTask& task, Stream stream) {
  return Enqueue<TakeDrawnKernel>(task, DrawnShape(task.count), stream);
}

}  // namespace tandem::cuda
