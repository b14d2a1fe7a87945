// The classes to which passes are padded on devices that replay passes of a shape that came before
// (GraphCache), so that shapes repeat while the number of sequences and of drafted tokens changes.
#ifndef TANDEM_MODEL_PASS_CLASSES_H_
#define TANDEM_MODEL_PASS_CLASSES_H_

#include <algorithm>
#include <bit>

#include "model/pass_message.h"

namespace tandem {

// Returns the class of a number of rows, sequences or wanted logits: 0 to 8, 16, 32, 64, and then
// multiples of 64.
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

}  // namespace tandem

#endif  // TANDEM_MODEL_PASS_CLASSES_H_
