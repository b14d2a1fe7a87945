#ifndef TANDEM_MODEL_HOST_LOGITS_H_
#define TANDEM_MODEL_HOST_LOGITS_H_

#include <vector>

#include "absl/types/span.h"
#include "kernels/matrix.h"
#include "tandem/types.h"

namespace tandem {

// Rows of logits in the host's memory that came from a device, whole or only as far as greedy
// decoding looks at them: half a megabyte a row of 128 Ki tokens, or four bytes. Thread-compatible.
class HostLogits {
 public:
  // Rows are kept. REQUIRES: always the same vocabulary.
  void Resize(int num_rows, int vocab_size);
  // Rows to write to, all of them.
  absl::Span<float> Whole(int first, int count);
  // Makes `largest` the row's ArgMax (model/sampling.h): everything else is -infinity. -1 for a row
  // that has none.
  void SetLargest(int row, TokenId largest);
  MatrixView view();

 private:
  static constexpr TokenId kWhole = -1;

  int vocab_size_ = 0;
  std::vector<float> values_;       // [rows, vocab]
  std::vector<TokenId> different_;  // [rows]: the one entry that is not -infinity, or kWhole
};

}  // namespace tandem

#endif  // TANDEM_MODEL_HOST_LOGITS_H_
