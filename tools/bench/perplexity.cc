#include "tools/bench/perplexity.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "model/sampling.h"

namespace tandem {
namespace {

using OnChunk = absl::FunctionRef<absl::Status(const Perplexity&)>;

// Reads tokens [begin, end), and adds the log-probabilities of those in [first_scored, end) to
// *sum.
absl::Status ReadWindow(absl::Span<const TokenId> tokens, int64_t begin, int64_t first_scored,
                        int64_t end, int chunk_tokens, LanguageModel* model, PagedKvCache* cache,
                        OnChunk on_chunk, Perplexity* sum) {
  KvSequence sequence = cache->NewSequence(model->cache_variant(static_cast<int>(end - begin)));
  // The last token is only predicted; the model need not read it.
  for (int64_t i = begin; i < end - 1; i += chunk_tokens) {
    const int64_t chunk_end = std::min(i + chunk_tokens, end - 1);
    // Row j predicts token j + 1.
    const int64_t first_row = std::clamp(first_scored - 1, i, chunk_end);
    const ForwardRequest request{.tokens = tokens.subspan(i, chunk_end - i),
                                 .kv = &sequence,
                                 .num_logits = static_cast<int>(chunk_end - first_row)};
    ASSIGN_OR_RETURN(const MatrixView logits, model->Forward({&request, 1}));
    for (int64_t row = first_row; row < chunk_end; ++row) {
      const absl::Span<const float> values = {
          static_cast<const float*>(logits.data) + (row - first_row) * logits.stride,
          static_cast<size_t>(logits.cols)};
      sum->nats -= LogprobsOf(values, tokens[row + 1], 0).logprob;
      ++sum->tokens;
    }
    sum->end = std::max(sum->end, chunk_end + 1);
    RETURN_IF_ERROR(on_chunk(*sum));
  }
  return absl::OkStatus();
}

}  // namespace

double Perplexity::perplexity() const { return std::exp(nats / static_cast<double>(tokens)); }

double Perplexity::BitsPerByte(int64_t bytes) const {
  return nats / std::log(2.0) / static_cast<double>(bytes);
}

absl::StatusOr<Perplexity> MeasurePerplexity(absl::Span<const TokenId> tokens,
                                             const PerplexityOptions& options, LanguageModel* model,
                                             PagedKvCache* cache, OnChunk on_chunk) {
  TANDEM_CHECK(2 <= options.window && options.window <= model->context_length());
  TANDEM_CHECK(1 <= options.stride && options.stride <= options.window);
  const int64_t count = static_cast<int64_t>(tokens.size());
  if (count < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("perplexity: the text has ", count, " tokens, allowed: at least 2"));
  }
  Perplexity sum;
  int64_t scored = 1;
  for (int64_t begin = 0; scored < count; begin += options.stride) {
    const int64_t end = std::min(begin + options.window, count);
    scored = std::max(scored, begin + 1);
    RETURN_IF_ERROR(
        ReadWindow(tokens, begin, scored, end, options.chunk_tokens, model, cache, on_chunk, &sum));
    scored = end;
  }
  return sum;
}

}  // namespace tandem
