// How well a model predicts a text: what quantisation costs, as a number.
#ifndef TANDEM_BENCH_PERPLEXITY_H_
#define TANDEM_BENCH_PERPLEXITY_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kvcache/paged_kv_cache.h"
#include "model/language_model.h"
#include "tandem/types.h"

namespace tandem {

// Tokens are read in windows of `window` that begin `stride` apart, and each but the text's first
// is predicted once: by the first window that holds it, from the tokens before it there. So all but
// the first window's have at least window - stride tokens of context. Windows that are `window`
// apart share no token, and predict all but their first.
struct PerplexityOptions {
  int window = 0;          // in [2, the model's context]
  int stride = 0;          // in [1, window]
  int chunk_tokens = 256;  // read per pass
};

struct Perplexity {
  int64_t tokens = 0;  // predicted
  double nats = 0.0;   // the sum of their negative log-probabilities

  double perplexity() const;
  // Of a text of so many bytes.
  double BitsPerByte(int64_t bytes) const;
};

// `cache` is the model's and holds a window. `on_tokens` is called with how many more tokens have
// been predicted. INVALID_ARGUMENT for fewer than two tokens; else fails as the model does.
absl::StatusOr<Perplexity> MeasurePerplexity(absl::Span<const TokenId> tokens,
                                             const PerplexityOptions& options, LanguageModel* model,
                                             PagedKvCache* cache,
                                             absl::FunctionRef<void(int)> on_tokens);

}  // namespace tandem

#endif  // TANDEM_BENCH_PERPLEXITY_H_
