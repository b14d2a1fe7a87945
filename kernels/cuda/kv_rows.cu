// Rotates queries and keys, and writes to the cache: one warp per head.
#include "kernels/cuda/launch_shapes.h"
#include "kernels/cuda/warp_math.cuh"

namespace tandem::cuda {

struct RotateAndCacheKernel {
  using Task = RotateAndCacheTask;
  static constexpr int kThreads = kHeadWarps * kWarpSize;

  TANDEM_DEVICE static void Run(const Task& task, unsigned char* shared) {
    // Kernels do not write the tables, so these are read before WaitForKernelsBefore.
    const PagedKvView& kv = task.kv;
    const RowPlace place = PlaceOf(task.rows, kv.lengths, BlockX());
    const int64_t page = place.sequence < 0 ? 0 : PageOf(kv, place.sequence, place.position);
    WaitForKernelsBefore();
    const int head = BlockY() * kHeadWarps + WarpIndex();
    if (place.sequence < 0 || head >= task.num_heads + 2 * kv.num_kv_heads) return;
    const int first_key = task.num_heads;
    const int first_value = first_key + kv.num_kv_heads;
    const bool is_query = head < first_key;
    const bool is_value = head >= first_value;
    float* const row = RowOf(task.qkv, BlockX()) + int64_t{head} * kv.head_dim;
    auto* const numbers = reinterpret_cast<float*>(shared) + WarpIndex() * kv.head_dim;

    ForEach(
        Lane(), kv.head_dim, kWarpSize, [&](int i) { return Load(row + i); },
        [&](int i, float number) { Store(numbers + i, number); });
    SyncWarp();
    if (!is_value) {
      const float* const norm = is_query ? task.query_norm : task.key_norm;
      if (norm != nullptr) Normalise(norm, kv.head_dim, task.epsilon, numbers);
      Rotate(RowOf(task.angles, BlockX()), kv.head_dim, numbers, row);
    }
    if (is_query) return;
    const int kv_head = is_value ? head - first_value : head - first_key;
    Cache(kv, kv.BlockOf(page, kv_head), place.position % kv.page_size, is_value, numbers);
  }

 private:
  // The sum of squares has 32 chains, by index modulo 32, which are added by a tree.
  TANDEM_DEVICE static void Normalise(const float* weight, int head_dim, float epsilon,
                                      float* numbers) {
    float squares = 0.0f;
    for (int i = Lane(); i < head_dim; i += kWarpSize) {
      const float value = Load(numbers + i);
      squares = MulAdd(value, value, squares);
    }
    const float inverse = InverseRoot(WarpSum(squares), head_dim, epsilon);
    for (int i = Lane(); i < head_dim; i += kWarpSize) {
      Store(numbers + i, Load(numbers + i) * inverse * Load(weight + i));
    }
    SyncWarp();
  }

  // Three roundings per element, as in the reference: x cos + rotated(x) sin.
  TANDEM_DEVICE static void Rotate(const float* angles, int head_dim, float* numbers, float* row) {
    const int half = head_dim / 2;
    struct Turn {
      float cosine, sine;
    };
    const auto turn_at = [&](int i) { return Turn{Load(angles + i), Load(angles + half + i)}; };
    ForEach(Lane(), half, kWarpSize, turn_at, [&](int i, const Turn& turn) {
      const float cosine = turn.cosine, sine = turn.sine;
      const float first = Load(numbers + i), second = Load(numbers + half + i);
      const float new_first = first * cosine - second * sine;
      const float new_second = second * cosine + first * sine;
      Store(numbers + i, new_first);
      Store(numbers + half + i, new_second);
      Store(row + i, new_first);
      Store(row + half + i, new_second);
    });
    SyncWarp();
  }

  // Writes to place `slot` of the page whose block for this head begins at `first`.
  TANDEM_DEVICE static void Cache(const PagedKvView& kv, int64_t first, int slot, bool is_value,
                                  const float* numbers) {
    const int words = KvElementWords(kv.dtype, kv.head_dim);
    auto* const block = static_cast<uint32_t*>(is_value ? kv.values : kv.keys) + first;
    uint32_t* const to = block + (is_value ? int64_t{slot} * words : slot);
    const int64_t stride = is_value ? 1 : kv.page_size;
    RowScale scale{1.0f, 1.0f};
    if (kv.dtype == KvDType::kInt8) {
      scale = ScaleOf(numbers, kv.head_dim);
      if (Lane() == 0) {
        Store(block + int64_t{words} * kv.page_size + slot, FloatToBits(scale.scale));
      }
    }
    for (int w = Lane(); w < words; w += kWarpSize) {
      Store(to + w * stride, WordOf(kv, numbers, w, scale.inverse));
    }
  }

  // The scale of a row of int8, with the same bits as kernels/cpu/kv_rows.cc. For a row that is not
  // finite, the scale is NaN and the inverse 0, so that its elements are 0.
  struct RowScale {
    float scale;
    float inverse;
  };
  TANDEM_DEVICE static RowScale ScaleOf(const float* numbers, int head_dim) {
    float largest = 0.0f;
    bool is_finite = true;
    for (int i = Lane(); i < head_dim; i += kWarpSize) {
      const uint32_t size = FloatToBits(Load(numbers + i)) & 0x7FFFFFFFu;
      largest = Larger(largest, BitsToFloat(size));
      is_finite = is_finite && size < 0x7F800000u;
    }
    largest = WarpMax(largest);
    if (Vote(is_finite) != kWholeWarp) return {BitsToFloat(0x7FC00000u), 0.0f};
    return {largest / 127.0f, largest > 0x1p-119f ? 127.0f / largest : 0.0f};
  }

  // Word w of a row: one f32, two bf16 or four int8.
  TANDEM_DEVICE static uint32_t WordOf(const PagedKvView& kv, const float* numbers, int w,
                                       float inverse) {
    if (kv.dtype == KvDType::kF32) return FloatToBits(Load(numbers + w));
    if (kv.dtype == KvDType::kBF16) {
      const float odd = 2 * w + 1 < kv.head_dim ? Load(numbers + 2 * w + 1) : 0.0f;
      return PackBf16(Load(numbers + 2 * w), odd);
    }
    uint32_t word = 0;
    for (int i = 0; i < 4 && 4 * w + i < kv.head_dim; ++i) {
      // Adding 1.5 * 2^23 rounds to an integer, which is then in the low bits.
      const float scaled = inverse == 0.0f ? 0.0f : Load(numbers + 4 * w + i) * inverse;
      word |= (FloatToBits(scaled + 0x1.8p23f) & 0xFFu) << 8 * i;
    }
    return word;
  }
};

Error Launch(const RotateAndCacheTask& task, Stream stream) {
  const int num_heads = task.num_heads + 2 * task.kv.num_kv_heads;
  return Enqueue<RotateAndCacheKernel>(task, HeadShape(task.qkv.rows, num_heads, task.kv.head_dim),
                                       stream);
}

}  // namespace tandem::cuda
