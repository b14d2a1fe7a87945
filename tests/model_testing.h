// For tests of whole models: reading tokens, and comparing logits.
#ifndef TANDEM_TESTS_MODEL_TESTING_H_
#define TANDEM_TESTS_MODEL_TESTING_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/types/span.h"
#include "base/check.h"
#include "kvcache/paged_kv_cache.h"
#include "model/language_model.h"
#include "model/sampling.h"

namespace tandem {

// Reads `tokens` in passes of `chunk`, and returns the logits [tokens, vocab] of every row.
inline std::vector<float> Feed(LanguageModel& model, KvSequence* kv,
                               absl::Span<const TokenId> tokens,
                               size_t chunk = std::numeric_limits<size_t>::max()) {
  std::vector<float> logits;
  for (size_t begin = 0; begin < tokens.size();) {
    const auto part = tokens.subspan(begin, chunk);
    const ForwardRequest request{
        .tokens = part, .kv = kv, .num_logits = static_cast<int>(part.size())};
    const auto rows = model.Forward({&request, 1});
    TANDEM_CHECK(rows.ok());
    const auto* const data = static_cast<const float*>(rows->data);
    logits.insert(logits.end(), data, data + int64_t{rows->rows} * rows->cols);
    begin += part.size();
  }
  return logits;
}

// Returns `count` greedy tokens after `tokens`, which `kv`, an empty sequence, reads.
inline std::vector<TokenId> ContinueGreedily(LanguageModel& model, KvSequence* kv,
                                             std::vector<TokenId> tokens, size_t count) {
  const size_t num_read = tokens.size();
  while (tokens.size() < num_read + count) {
    const ForwardRequest request{
        .tokens = absl::MakeConstSpan(tokens).subspan(kv->length()), .kv = kv, .num_logits = 1};
    const auto row = model.Forward({&request, 1});
    TANDEM_CHECK(row.ok());
    tokens.push_back(
        ArgMax({static_cast<const float*>(row->data), static_cast<size_t>(row->cols)}));
  }
  return {tokens.begin() + num_read, tokens.end()};
}

// Returns the largest difference of two elements, or infinity if one is NaN or the sizes
// differ.
inline float LargestDifference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return std::numeric_limits<float>::infinity();
  float largest = 0.0f;
  for (size_t i = 0; i < a.size(); ++i) {
    const float difference = std::abs(a[i] - b[i]);
    if (std::isnan(difference)) return std::numeric_limits<float>::infinity();
    largest = std::max(largest, difference);
  }
  return largest;
}

}  // namespace tandem

#endif  // TANDEM_TESTS_MODEL_TESTING_H_
