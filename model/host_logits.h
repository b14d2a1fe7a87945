#ifndef TANDEM_MODEL_HOST_LOGITS_H_
#define TANDEM_MODEL_HOST_LOGITS_H_

#include <algorithm>
#include <limits>
#include <vector>

#include "absl/types/span.h"
#include "base/check.h"
#include "kernels/matrix.h"
#include "tandem/types.h"

namespace tandem {

// Holds rows of logits that were copied from a device to the host. A row is whole (half a megabyte
// for 128 Ki tokens), or has only the ArgMax that greedy decoding needs (four bytes to copy).
// Thread-compatible.
class HostLogits {
 public:
  // Keeps existing rows. REQUIRES: the same vocabulary in every call.
  void Resize(int num_rows, int vocab_size) {
    TANDEM_CHECK(vocab_size_ == 0 || vocab_size == vocab_size_);
    vocab_size_ = vocab_size;
    values_.resize(static_cast<size_t>(num_rows) * vocab_size);
    different_.resize(num_rows, kWhole);
  }
  // Returns rows [first, first + count) for the caller to overwrite completely.
  absl::Span<float> Whole(int first, int count) {
    std::fill_n(different_.begin() + first, count, kWhole);
    return absl::MakeSpan(values_).subspan(static_cast<size_t>(first) * vocab_size_,
                                           static_cast<size_t>(count) * vocab_size_);
  }
  // Makes `largest` the row's ArgMax (model/sampling.h) and sets the other entries to -infinity. -1
  // for an invalid row.
  void SetArgMax(int row, TokenId largest) {
    TANDEM_CHECK(-1 <= largest && largest < vocab_size_);
    constexpr float kNothing = -std::numeric_limits<float>::infinity();
    float* const values = values_.data() + static_cast<size_t>(row) * vocab_size_;
    TokenId& different = different_[row];
    if (different == kWhole) {
      std::fill_n(values, vocab_size_, kNothing);
    } else {
      values[different] = kNothing;
    }
    different = std::max(largest, 0);
    values[different] = largest < 0 ? std::numeric_limits<float>::quiet_NaN() : 0.0f;
  }
  MatrixView view() {
    return {values_.data(), DType::kF32, static_cast<int>(different_.size()), vocab_size_,
            vocab_size_};
  }

 private:
  static constexpr TokenId kWhole = -1;

  int vocab_size_ = 0;
  std::vector<float> values_;       // [rows, vocab]
  std::vector<TokenId> different_;  // [rows]: the only entry that is not -infinity, or kWhole
};

}  // namespace tandem

#endif  // TANDEM_MODEL_HOST_LOGITS_H_
