#include "model/host_logits.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace tandem {

void HostLogits::Resize(int num_rows, int vocab_size) {
  TANDEM_CHECK(vocab_size_ == 0 || vocab_size == vocab_size_);
  vocab_size_ = vocab_size;
  values_.resize(static_cast<size_t>(num_rows) * vocab_size);
  different_.resize(num_rows, kWhole);
}

absl::Span<float> HostLogits::Whole(int first, int count) {
  std::fill_n(different_.begin() + first, count, kWhole);
  return absl::MakeSpan(values_).subspan(static_cast<size_t>(first) * vocab_size_,
                                         static_cast<size_t>(count) * vocab_size_);
}

void HostLogits::SetLargest(int row, TokenId largest) {
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

MatrixView HostLogits::view() {
  return {values_.data(), DType::kF32, static_cast<int>(different_.size()), vocab_size_,
          vocab_size_};
}

}  // namespace tandem
