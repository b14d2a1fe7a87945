// The tables and the size of a pass, and the message with which rank 0 of a group announces it to
// the other ranks.
#ifndef TANDEM_MODEL_PASS_MESSAGE_H_
#define TANDEM_MODEL_PASS_MESSAGE_H_

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/paged_kv.h"
#include "kvcache/page_pool.h"

namespace tandem {

// The layout of a pass's integer tables, which share one buffer so that one copy uploads all of
// them. Offsets are in elements.
struct PassTables {
  PassTables(int batch, int rows, int logit_rows, int max_pages)
      : batch(batch),
        rows(rows),
        logit_rows(logit_rows),
        max_pages(max_pages),
        ids(0),
        starts(ids + rows),
        lengths(starts + batch + 1),
        page_tables(lengths + batch),
        wanted(page_tables + static_cast<size_t>(batch) * max_pages),
        sources(wanted + logit_rows),
        variants(sources + rows),
        row_indices(variants + batch),
        size(row_indices + rows),
        plan((size + 3) / 4 * 4) {}
  int batch;
  int rows;
  int logit_rows;
  int max_pages;
  size_t ids;          // [rows]
  size_t starts;       // [batch + 1]
  size_t lengths;      // [batch]
  size_t page_tables;  // [batch, max_pages]
  size_t wanted;       // [logit_rows]: rows whose logits are requested
  size_t sources;      // [rows]: slots that drew the ids, or -1
  size_t variants;     // [batch]: KvSequence::variant
  size_t row_indices;  // [rows]: 0, 1, ...
  size_t size;
  size_t plan;  // after the tables, which it is not one of: each rank's Backend::PlanRows
};

// Devices that replay passes of a shape that came before (GraphCache) pad passes to classes, so
// that shapes repeat while the number of sequences and of drafted tokens changes. Returns the class
// of a number of rows, sequences or wanted logits: 0 to 8, 16, 32, 64, and then multiples of 64.
inline constexpr int PassClassOf(int count) {
  if (count <= 8) return count;
  if (count <= 64) return static_cast<int>(std::bit_ceil(static_cast<unsigned>(count)));
  return (count + 63) / 64 * 64;
}

// The size of a pass. `pages` are those of its longest sequence.
struct PassSize {
  int batch = 0;
  int rows = 0;
  int logit_rows = 0;
  int pages = 0;

  // Tables of pages are rounded to a power of two, so that a text does not change the shape with
  // every page. If `pads`, they hold at least 256 tokens, because attention to fewer has the same
  // blocks, and the other numbers are rounded to their classes.
  PassTables Tables(bool pads, int page_size) const {
    constexpr int kLeastTokens = 256;
    const int least = pads ? (kLeastTokens + page_size - 1) / page_size : 1;
    const int max_pages =
        static_cast<int>(std::bit_ceil(static_cast<unsigned>(std::max(pages, least))));
    if (!pads) return PassTables(batch, rows, logit_rows, max_pages);
    return PassTables(PassClassOf(batch), PassClassOf(rows), PassClassOf(logit_rows), max_pages);
  }
};

// A pass of one of the group's models.
struct PassMessage {
  int32_t model = 0;  // Transformer::LoadOptions::first_slot
  PassTables tables{0, 0, 0, 0};
  bool finds_argmax = false;           // runs ArgMax, so that all ranks record the same pass
  absl::Span<const PageCopy> copies;   // to make before the pass, in this order
  absl::Span<const int32_t> integers;  // [tables.size]

  std::vector<std::byte> Encode() const;
  // Parses `bytes`, which must be aligned to 4 and outlive the result. INVALID_ARGUMENT if they are
  // not an encoded message.
  static absl::StatusOr<PassMessage> Decode(absl::Span<const std::byte> bytes);
};

}  // namespace tandem

#endif  // TANDEM_MODEL_PASS_MESSAGE_H_
