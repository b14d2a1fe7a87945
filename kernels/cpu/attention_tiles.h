// Finds the keys and values of a tile of attention, and converts them to the form that the kernels
// read. Include it after a simd_*.h. Each element is converted exactly to the f32 that it
// represents (for int8, without its scale). So a sum has the same bits whether elements are widened
// in advance or where they are used.
#ifndef TANDEM_KERNELS_CPU_ATTENTION_TILES_H_
#define TANDEM_KERNELS_CPU_ATTENTION_TILES_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/paged_kv.h"

namespace tandem {
namespace {

// A format of a cache has these members:
//   kPerWord: elements in a word
//   kParts: multiplications for each word of keys
//   kPositions: positions whose values are multiplied at once
//   Part(words, j): the operand of multiplication j, from 16 words of keys
//   Values<kWide, kPart>(p, stride, visible, count, out): the operands of kWide multiplications,
//     each of 16 dimensions (if kPart, of the first `count`), from the values of kPositions
//     positions at p, p + stride, ... Only the positions in `visible` are used.
//   Factor(x, y): the factor for one element, or for two, of a query
//   StoreWeights(out, weights): stores kAttendTile weights as factors
//   SplatFactor(p): the factor at p in every lane
//   Accumulate(sum, elements, factor): sum + elements * factor
//   kWidens: whether elements may be widened in advance, with
//     Widen(elements): 16 consecutive elements
//     Element(p): one element
struct F32Factors {
  using Elements = Floats;
  static constexpr int kPositions = 1;
  static constexpr bool kWidens = true;
  static float Factor(float x, float) { return x; }
  static Floats SplatFactor(const float* p) { return Splat(*p); }
  static Floats Accumulate(Floats sum, Floats elements, Floats factor) {
    return MulAdd(elements, factor, sum);
  }
  static void StoreWeights(float* out, const Floats* weights) {
    for (int v = 0; v < kAttendTile / kLanes; ++v) Store(out + v * kLanes, weights[v]);
  }
};

// Widens the first `count` of 16 consecutive elements. Does not touch the others.
template <class Kv>
Floats WidenPart(const std::byte* elements, int count) {
  constexpr int kBytes = 4 / Kv::kPerWord;
  if (count == kLanes) return Kv::Widen(elements);
  std::byte part[kLanes * kBytes] = {};
  for (int i = 0; i < count * kBytes; ++i) part[i] = elements[i];
  return Kv::Widen(part);
}

template <class Kv, int kWide, bool kPart>
void WidenValues(const std::byte* p, int count, Floats* out) {
  constexpr int kBytes = kLanes * 4 / Kv::kPerWord;
#pragma GCC unroll 4
  for (int v = 0; v < kWide; ++v) {
    out[v] = kPart ? WidenPart<Kv>(p, count) : Kv::Widen(p + v * kBytes);
  }
}

struct F32Kv : F32Factors {
  static constexpr KvDType kDType = KvDType::kF32;
  static constexpr int kPerWord = 1;
  static constexpr int kParts = 1;
  template <int kWide, bool kPart>
  static void Values(const std::byte* p, int64_t, IndexRange, int count, Floats* out) {
    WidenValues<F32Kv, kWide, kPart>(p, count, out);
  }
  static Floats Part(const std::byte* words, int) { return Widen(words); }
  static Floats Widen(const std::byte* elements) {
    return Load(reinterpret_cast<const float*>(elements));
  }
  static float Element(const std::byte* p) {
    float x;
    __builtin_memcpy(&x, p, sizeof(x));
    return x;
  }
};

struct BF16Kv : F32Factors {
  static constexpr KvDType kDType = KvDType::kBF16;
  static constexpr int kPerWord = 2;
  static constexpr int kParts = 2;
  template <int kWide, bool kPart>
  static void Values(const std::byte* p, int64_t, IndexRange, int count, Floats* out) {
    WidenValues<BF16Kv, kWide, kPart>(p, count, out);
  }
  static Floats Part(const std::byte* words, int j) {
    return j == 0 ? EvenBf16(words) : OddBf16(words);
  }
  static Floats Widen(const std::byte* elements) { return WidenBf16(elements); }
  static float Element(const std::byte* p) {
    uint16_t half;
    __builtin_memcpy(&half, p, sizeof(half));
    const uint32_t bits = uint32_t{half} << 16;
    float x;
    __builtin_memcpy(&x, &bits, sizeof(x));
    return x;
  }
};

struct Int8Kv : F32Factors {
  static constexpr KvDType kDType = KvDType::kInt8;
  static constexpr int kPerWord = 4;
  static constexpr int kParts = 4;
  template <int kWide, bool kPart>
  static void Values(const std::byte* p, int64_t, IndexRange, int count, Floats* out) {
    WidenValues<Int8Kv, kWide, kPart>(p, count, out);
  }
  static Floats Part(const std::byte* words, int j) { return Int8OfWords(words, j); }
  static Floats Widen(const std::byte* elements) { return WidenInt8(elements); }
  static float Element(const std::byte* p) {
    return static_cast<float>(static_cast<int8_t>(static_cast<uint8_t>(*p)));
  }
};

}  // namespace

namespace {

inline constexpr int kHalves = kAttendTile / kLanes;

// 16 positions of a tile. Word w of their keys is at keys + w * key_stride, and the elements of
// value i are at values + i * value_stride. If the unit sees none of the positions, all point to
// zeros, with strides of 0.
struct HalfTile {
  const std::byte* keys;
  const std::byte* values;
  const std::byte* key_scales;    // [16], if the cache has scales
  const std::byte* value_scales;  // [16], if the cache has scales
  int64_t key_stride;             // bytes
  int64_t value_stride;
};
struct Tile {
  HalfTile halves[kHalves];
};

// Prefetches the cache lines of the next tile, a few at a time: pages are too short for the
// hardware's prefetcher, and a core has at most about 24 lines in flight.
struct Fetcher {
  const std::byte** lines;  // [AttendTileLines]
  int next;
  int end;
  int per_step;

  void Step() {
    for (int i = 0; i < per_step && next < end; ++i) FetchFar(lines[next++]);
  }
};

// The working state of a unit: `num_vectors` query vectors, in the order of rows and then heads.
struct AttendState {
  const AttendTask* task;
  const AttendUnit* unit;
  int num_heads;  // query heads of the unit
  int num_vectors;
  int head_dim;
  int padded_dim;
  IndexRange visible;      // positions that at least one vector sees
  IndexRange seen_by_all;  // positions that all vectors see; empty if begin >= end

  float* sums;  // [num_vectors, sum_stride]: weighted values so far, then lanes of exponentials
  float* references;  // [num_vectors]: subtracted from scores before the exponential
  int sum_stride;

  float* queries;       // [groups of up to kScoreRows vectors][head_dim, vectors of the group]
  float* scores;        // [num_vectors, kAttendTile]: scores of this tile, then its weights
  float* wide_keys;     // [head_dim, kAttendTile]
  float* wide_values;   // [kAttendTile, padded_dim]
  float* zeros;         // [padded_dim]
  float* key_scales;    // [kAttendTile]: the factors of scores
  float* value_scales;  // [kAttendTile], if the cache has scales

  Fetcher* fetcher;

  // Whether all vectors see the whole tile at position `first`.
  bool AllSee(int first) const {
    return first >= seen_by_all.begin && first + kAttendTile <= seen_by_all.end;
  }
  int row(int vector) const { return unit->rows.begin + vector / num_heads; }
  int position(int vector) const { return unit->first_position + vector / num_heads; }
  int64_t column(int vector) const {
    return static_cast<int64_t>(unit->kv_head * num_heads + vector % num_heads) * head_dim;
  }
};

// The positions that a row at `position` sees; empty if begin >= end.
inline IndexRange Visible(int position, const AttentionForm& form) {
  const int begin = form.window > 0 && position >= form.window ? position - form.window + 1 : 0;
  return {begin > form.first ? begin : form.first, position + 1};
}

// Keeps the lanes of half h of a tile that are in `lanes` (of the tile); `other` elsewhere.
inline Floats KeepOfHalf(Floats x, int h, IndexRange lanes, float other) {
  const int begin = lanes.begin - h * kLanes;
  const int end = lanes.end - h * kLanes;
  return KeepLanes(x,
                   begin < 0        ? 0
                   : begin < kLanes ? begin
                                    : kLanes,
                   end < 0        ? 0
                   : end < kLanes ? end
                                  : kLanes,
                   Splat(other));
}

// The lanes of the tile at `first` that a vector sees; empty if begin >= end.
inline IndexRange VisibleLanes(const AttendState& s, int vector, int first) {
  const IndexRange visible = Visible(s.position(vector), s.task->form);
  if (visible.begin >= visible.end) return {0, 0};
  return {visible.begin > first ? visible.begin - first : 0,
          visible.end - first < kAttendTile ? visible.end - first : kAttendTile};
}

// ---- Where a tile is ----

// The offset, in bytes, of the unit's head in the page that holds `position`.
inline int64_t BlockOf(const AttendState& s, int position) {
  const PagedKvView& kv = s.task->kv;
  const int64_t page = kv.page_tables[static_cast<int64_t>(s.unit->sequence) * kv.max_pages +
                                      position / kv.page_size];
  return 4 * kv.BlockOf(page, s.unit->kv_head);
}

// Finds the tile at `first`. REQUIRES: page_size % kLanes == 0, so that 16 positions share a page.
template <class Kv>
void FindTile(const AttendState& s, int first, Tile* tile) {
  const PagedKvView& kv = s.task->kv;
  const int words = KvElementWords(Kv::kDType, s.head_dim);
  const auto* zeros = reinterpret_cast<const std::byte*>(s.zeros);
  for (int h = 0; h < kHalves; ++h) {
    const int position = first + h * kLanes;
    HalfTile& half = tile->halves[h];
    half = {.keys = zeros,
            .values = zeros,
            .key_scales = zeros,
            .value_scales = zeros,
            .key_stride = 0,
            .value_stride = 0};
    if (position >= s.visible.end || position + kLanes <= s.visible.begin) continue;
    const int64_t block = BlockOf(s, position);
    const int place = position % kv.page_size;
    half.key_stride = int64_t{4} * kv.page_size;
    half.value_stride = int64_t{4} * words;
    const std::byte* keys = static_cast<const std::byte*>(kv.keys) + block;
    half.keys = keys + 4 * place;
    half.key_scales = keys + words * half.key_stride + 4 * place;
    const std::byte* values = static_cast<const std::byte*>(kv.values) + block;
    half.values = values + place * half.value_stride;
    half.value_scales = values + kv.page_size * half.value_stride + 4 * place;
  }
}

// Copies the scales of the tile at `first` for visible positions. Other entries of `scales` are
// unspecified.
inline void GatherScalesOf(const AttendState& s, const void* cache, int first, float* scales) {
  const PagedKvView& kv = s.task->kv;
  const int64_t skipped = int64_t{4} * kv.page_size * KvElementWords(kv.dtype, kv.head_dim);
  for (int lane = 0; lane < kAttendTile;) {
    const int position = first + lane;
    const int place = position % kv.page_size;
    int count = kv.page_size - place;
    if (count > kAttendTile - lane) count = kAttendTile - lane;
    if (position < s.visible.end && position + count > s.visible.begin) {
      __builtin_memcpy(scales + lane,
                       static_cast<const std::byte*>(cache) + BlockOf(s, position) + skipped +
                           int64_t{4} * place,
                       static_cast<size_t>(count) * sizeof(float));
    }
    lane += count;
  }
}

// Sets key_scales and value_scales for the tile at `first`, for any page size.
template <class Kv>
void GatherScales(const AttendState& s, int first) {
  const Floats scale = Splat(s.task->form.scale);
  if constexpr (Kv::kDType == KvDType::kInt8) {
    GatherScalesOf(s, s.task->kv.keys, first, s.key_scales);
    GatherScalesOf(s, s.task->kv.values, first, s.value_scales);
    for (int v = 0; v < kAttendTile; v += kLanes) {
      Store(s.key_scales + v, Mul(Load(s.key_scales + v), scale));
    }
  } else {
    for (int v = 0; v < kAttendTile; v += kLanes) Store(s.key_scales + v, scale);
  }
}

// The same for a tile that FindTile has found.
template <class Kv>
void FindScales(const AttendState& s, const Tile& tile) {
  const Floats scale = Splat(s.task->form.scale);
  for (int h = 0; h < kHalves; ++h) {
    Floats key_scale = scale;
    if constexpr (Kv::kDType == KvDType::kInt8) {
      key_scale = Mul(F32Kv::Widen(tile.halves[h].key_scales), scale);
      Store(s.value_scales + h * kLanes, F32Kv::Widen(tile.halves[h].value_scales));
    }
    Store(s.key_scales + h * kLanes, key_scale);
  }
}

// The number of steps in which a tile is computed: for each group of vectors, one for each word of
// keys and one for each slice of values that is multiplied at once.
template <class Kv>
int FetchSteps(const AttendState& s) {
  const int groups = (s.num_vectors + kScoreRows - 1) / kScoreRows;
  const int slices = (s.head_dim + kMixVectors * kLanes - 1) / (kMixVectors * kLanes);
  return groups *
         (KvElementWords(Kv::kDType, s.head_dim) + slices * (kAttendTile / Kv::kPositions));
}

// Plans the prefetches of `tile`, which are made in the steps of computing another tile.
template <class Kv>
void FetchMeanwhile(const AttendState& s, const Tile& tile) {
  Fetcher& fetcher = *s.fetcher;
  const int words = KvElementWords(Kv::kDType, s.head_dim);
  int count = 0;
  for (int h = 0; h < kHalves; ++h) {
    const HalfTile& half = tile.halves[h];
    if (half.key_stride == 0) continue;
    for (int w = 0; w < words; ++w) fetcher.lines[count++] = half.keys + w * half.key_stride;
    if (Kv::kDType == KvDType::kInt8) fetcher.lines[count++] = half.key_scales;
  }
  for (int h = 0; h < kHalves; ++h) {
    const HalfTile& half = tile.halves[h];
    if (half.key_stride == 0) continue;
    for (int w = 0; w < words; ++w) fetcher.lines[count++] = half.values + w * 64;
    if (Kv::kDType == KvDType::kInt8) fetcher.lines[count++] = half.value_scales;
  }
  const int steps = FetchSteps<Kv>(s);
  fetcher.next = 0;
  fetcher.end = count;
  fetcher.per_step = (count + steps - 1) / steps;
}

// ---- Keys and values as f32: for many vectors, or if 16 positions are in several pages ----

inline void UseWideTile(const AttendState& s, Tile* tile) {
  for (int h = 0; h < kHalves; ++h) {
    tile->halves[h] = {
        .keys = reinterpret_cast<const std::byte*>(s.wide_keys + h * kLanes),
        .values = reinterpret_cast<const std::byte*>(s.wide_values + h * kLanes * s.padded_dim),
        .key_scales = nullptr,
        .value_scales = nullptr,
        .key_stride = int64_t{4} * kAttendTile,
        .value_stride = int64_t{4} * s.padded_dim};
  }
}

template <class Kv>
void WidenValue(const AttendState& s, const std::byte* elements, int lane) {
  float* wide = s.wide_values + static_cast<int64_t>(lane) * s.padded_dim;
  for (int d = 0; d < s.head_dim; d += kLanes) {
    const int count = s.head_dim - d < kLanes ? s.head_dim - d : kLanes;
    Store(wide + d, WidenPart<Kv>(elements + d * (4 / Kv::kPerWord), count));
  }
}

template <class Kv>
void WidenTile(const AttendState& s, const Tile& tile) {
  for (int h = 0; h < kHalves; ++h) {
    const HalfTile& half = tile.halves[h];
    float* wide = s.wide_keys + h * kLanes;
    const std::byte* words = half.keys;
    for (int d = 0; d < s.head_dim; words += half.key_stride) {
#pragma GCC unroll 4
      for (int j = 0; j < Kv::kPerWord; ++j) {
        if (d + j < s.head_dim) Store(wide + (d + j) * kAttendTile, Kv::Part(words, j));
      }
      d += Kv::kPerWord;
    }
    for (int i = 0; i < kLanes; ++i) {
      WidenValue<Kv>(s, half.values + i * half.value_stride, h * kLanes + i);
    }
  }
}

// Widens the tile at `first` position by position, for any page size. Positions that the unit does
// not see become zeros.
template <class Kv>
void GatherTile(const AttendState& s, int first) {
  const PagedKvView& kv = s.task->kv;
  constexpr int kBytes = 4 / Kv::kPerWord;
  const int64_t key_stride = int64_t{4} * kv.page_size;
  const int64_t value_stride = int64_t{4} * KvElementWords(Kv::kDType, s.head_dim);
  for (int lane = 0; lane < kAttendTile; ++lane) {
    const int position = first + lane;
    float* wide = s.wide_keys + lane;
    if (position < s.visible.begin || position >= s.visible.end) {
      for (int d = 0; d < s.head_dim; ++d) wide[d * kAttendTile] = 0.0f;
      WidenValue<F32Kv>(s, reinterpret_cast<const std::byte*>(s.zeros), lane);
      continue;
    }
    const int64_t block = BlockOf(s, position);
    const int place = position % kv.page_size;
    const std::byte* key = static_cast<const std::byte*>(kv.keys) + block + 4 * place;
    for (int d = 0; d < s.head_dim; ++d) {
      const std::byte* word = key + d / Kv::kPerWord * key_stride;
      wide[d * kAttendTile] = Kv::Element(word + d % Kv::kPerWord * kBytes);
    }
    WidenValue<Kv>(s, static_cast<const std::byte*>(kv.values) + block + place * value_stride,
                   lane);
  }
}

// The same for formats that are not widened: gathers the cache's words.
template <class Kv>
void GatherWords(const AttendState& s, int first, Tile* tile) {
  const PagedKvView& kv = s.task->kv;
  const int words = KvElementWords(Kv::kDType, s.head_dim);
  const int64_t key_stride = int64_t{4} * kv.page_size;
  const int64_t value_bytes = int64_t{4} * words;
  auto* keys = reinterpret_cast<std::byte*>(s.wide_keys);
  auto* values = reinterpret_cast<std::byte*>(s.wide_values);
  for (int h = 0; h < kHalves; ++h) {
    tile->halves[h] = {.keys = keys + 4 * h * kLanes,
                       .values = values + h * kLanes * value_bytes,
                       .key_scales = nullptr,
                       .value_scales = nullptr,
                       .key_stride = int64_t{4} * kAttendTile,
                       .value_stride = value_bytes};
  }
  for (int lane = 0; lane < kAttendTile; ++lane) {
    const int position = first + lane;
    const bool seen = position >= s.visible.begin && position < s.visible.end;
    const int64_t block = seen ? BlockOf(s, position) : 0;
    const int place = position % kv.page_size;
    const std::byte* key = seen ? static_cast<const std::byte*>(kv.keys) + block + 4 * place
                                : reinterpret_cast<const std::byte*>(s.zeros);
    const std::byte* value =
        seen ? static_cast<const std::byte*>(kv.values) + block + place * value_bytes
             : reinterpret_cast<const std::byte*>(s.zeros);
    for (int w = 0; w < words; ++w) {
      __builtin_memcpy(keys + 4 * (w * kAttendTile + lane), key + (seen ? w * key_stride : 0), 4);
    }
    __builtin_memcpy(values + lane * value_bytes, value, static_cast<size_t>(value_bytes));
  }
}

}  // namespace

}  // namespace tandem

#endif  // TANDEM_KERNELS_CPU_ATTENTION_TILES_H_
