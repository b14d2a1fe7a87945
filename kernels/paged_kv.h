#ifndef TANDEM_KERNELS_PAGED_KV_H_
#define TANDEM_KERNELS_PAGED_KV_H_

#include <cstdint>

namespace tandem {

// The type of a KV cache's elements. int8 is symmetric around 0: value = int8 * scale. Each token
// and head has one scale for its key and one for its value, so writing a token changes no other
// token.
enum class KvDType : uint8_t { kF32, kBF16, kInt8 };
inline constexpr int kNumKvDTypes = 3;
inline constexpr KvDType kAllKvDTypes[] = {KvDType::kF32, KvDType::kBF16, KvDType::kInt8};

inline constexpr const char* NameOf(KvDType dtype) {
  return dtype == KvDType::kF32 ? "f32" : dtype == KvDType::kBF16 ? "bf16" : "int8";
}
inline constexpr int KvElementBytes(KvDType dtype) {
  return dtype == KvDType::kF32 ? 4 : dtype == KvDType::kBF16 ? 2 : 1;
}
// Words of 4 bytes for the elements of the key, or of the value, of one token and head.
inline constexpr int KvElementWords(KvDType dtype, int head_dim) {
  return static_cast<int>((int64_t{head_dim} * KvElementBytes(dtype) + 3) / 4);
}
// The same, including the scale.
inline constexpr int KvRowWords(KvDType dtype, int head_dim) {
  return KvElementWords(dtype, head_dim) + (dtype == KvDType::kInt8 ? 1 : 0);
}

// Pages in a group. Within a group the pages of one head are contiguous, because attention reads
// them one after the other.
inline constexpr int kKvGroupPages = 16;

// One layer of a batch's KV cache, as kernels read it. All pointers are to the backend's memory.
// The unit is a word of 4 bytes: one f32, two bf16 or four int8 elements, in increasing order.
//
// Head h of a page starts at keys (or values) + BlockOf(page, h). With E = KvElementWords and
// P = page_size:
//   keys:   [E, P], so that kernels have lanes over positions; then the scales [P], if any
//   values: [P, E], so that kernels have lanes over elements; then the scales [P], if any
// Position t of a sequence is place t % P of page page_tables[sequence * max_pages + t / P].
// Positions from lengths[sequence] on are garbage by definition and may hold NaN.
struct PagedKvView {
  void* keys = nullptr;
  void* values = nullptr;
  const int32_t* page_tables = nullptr;  // [batch, max_pages]
  const int32_t* lengths = nullptr;      // [batch], including the tokens of this pass
  int batch = 0;
  int max_pages = 0;
  int page_size = 0;
  // Words from one page of a group to the next, from one head to the next, and from one group to
  // the next.
  int64_t page_stride = 0;
  int64_t head_stride = 0;
  int64_t group_stride = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  KvDType dtype = KvDType::kF32;

  // The offset, in words, of a head's block in a page.
  constexpr int64_t BlockOf(int64_t page, int kv_head) const {
    return page / kKvGroupPages * group_stride + page % kKvGroupPages * page_stride +
           kv_head * head_stride;
  }
};

// The pages of a model's cache, as they are copied whole. The words of a page outside the cache are
// its pieces in order, then its state.
struct KvPages {
  uint32_t* pieces = nullptr;  // [groups, num_pieces, kKvGroupPages, piece_words]
  uint32_t* states = nullptr;  // [pages, state_words]
  int num_pieces = 0;          // of a page
  int64_t piece_words = 0;
  int64_t state_words = 0;  // 0: pages do not have states

  constexpr int64_t page_words() const { return num_pieces * piece_words + state_words; }
  // The offset in `pieces` of a page's piece.
  constexpr int64_t OffsetOf(int64_t page, int64_t piece) const {
    return ((page / kKvGroupPages * num_pieces + piece) * kKvGroupPages + page % kKvGroupPages) *
           piece_words;
  }
};
struct PageCopy {
  int32_t from = 0;
  int32_t to = 0;
};

// Assigns the rows of a pass to sequences: rows [starts[i], starts[i + 1]) are the last tokens of
// sequence i, in order. So row r is at position lengths[i] - (starts[i + 1] - r), and attends to
// the positions up to and including its own.
struct RaggedRows {
  const int32_t* starts = nullptr;  // [batch + 1], in backend memory
  int batch = 0;
  int num_rows = 0;
  const int32_t* plan = nullptr;  // Backend::PlanRows, in backend memory; null where that is empty
};

// What decides how a pass's rows are divided among the blocks of attention.
struct AttentionSizes {
  int num_heads = 0;
  int num_kv_heads = 0;  // 0: no attention
  int head_dim = 0;
  KvDType dtype = KvDType::kF32;
};

// The tables of rotary position embeddings, in backend memory.
struct RotaryTables {
  const float* inverse_frequencies = nullptr;  // [tables, head_dim / 2]; 0: pair is not rotated
  const float* magnitudes = nullptr;           // [head_dim / 2]: factors of cosines and sines
  const int32_t* of_sequence = nullptr;        // [batch]: the table of each sequence
};

// How attention computes weights from scores.
struct AttentionForm {
  float scale = 1.0f;
  int window = 0;         // positions that a row sees, including its own; 0: all up to its own
  int first = 0;          // the first position that rows see; rows before it see none
  float soft_cap = 0.0f;  // if not 0, score s becomes soft_cap * tanh(s / soft_cap)
};

}  // namespace tandem

#endif  // TANDEM_KERNELS_PAGED_KV_H_
