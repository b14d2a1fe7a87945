#include "bench/bench_passes.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/status_macros.h"
#include "bench/fill_cache.h"
#include "kvcache/paged_kv_cache.h"

namespace tandem {
namespace {

constexpr int kMostVerified = 16;
constexpr int kPageSize = 16;

struct Case {
  PassResult result;
  std::vector<TokenId> tokens;
  MachineLimits::Series series = {};
};

// The cases that the model's context holds.
std::vector<Case> CasesOf(const PassBenchmarkOptions& options, const Transformer& model,
                          const PassCounter& counter) {
  std::vector<Case> cases;
  for (const int context : options.contexts) {
    for (const int rows : options.rows) {
      if (context + rows > model.context_length()) continue;
      Case each;
      const bool is_prompt = rows > kMostVerified;
      each.result.what = rows == 1 ? "decode" : is_prompt ? "prefill" : "verify";
      each.result.shape = {.rows = rows, .context = context, .logit_rows = is_prompt ? 1 : rows};
      each.result.demand = counter.Of(each.result.shape);
      for (int i = 0; i < rows; ++i) each.tokens.push_back((7 * i + 1) % model.vocab_size());
      cases.push_back(std::move(each));
    }
  }
  return cases;
}

}  // namespace

absl::StatusOr<std::vector<PassResult>> RunPassBenchmark(const PassBenchmarkOptions& options,
                                                         Runtime* pair, MachineLimits* limits,
                                                         absl::FunctionRef<void()> on_repeat) {
  Transformer* model = pair->target.get();
  const KvLayout layout = model->kv_layout(kPageSize, pair->target_cache->layout().dtype);
  const PassCounter counter(model->config(), static_cast<int64_t>(model->bytes_read_per_pass()),
                            static_cast<int64_t>(layout.page_bytes() / layout.page_size),
                            model->dtype(), options.bf16_products);
  std::vector<Case> cases = CasesOf(options, *model, counter);
  int num_tokens = 0;  // of one case at a time, for a cache that is read by no other
  for (const Case& each : cases) {
    num_tokens = std::max(num_tokens, each.result.shape.context + each.result.shape.rows);
  }
  const int num_pages = std::max(1, (num_tokens + kPageSize - 1) / kPageSize);
  ASSIGN_OR_RETURN(const std::unique_ptr<PagedKvCache> cache,
                   PagedKvCache::Create(pair->backend.get(), layout, num_pages));
  {
    // The first pass packs the weights.
    KvSequence kv = cache->NewSequence();
    const TokenId token = 0;
    const ForwardRequest first{.tokens = {&token, 1}, .kv = &kv, .num_logits = 1};
    RETURN_IF_ERROR(model->Forward({&first, 1}).status());
  }
  FillCache(pair->backend.get(), cache.get());
  for (int i = 0; i < options.repeat; ++i) {
    for (Case& each : cases) {
      KvSequence kv = cache->NewSequence();
      RETURN_IF_ERROR(kv.Extend(each.result.shape.context));
      absl::Status status;
      const auto run = [&](int) {
        const ForwardRequest request{
            .tokens = each.tokens, .kv = &kv, .num_logits = each.result.shape.logit_rows};
        status.Update(model->Forward({&request, 1}).status());
        kv.Truncate(each.result.shape.context);
      };
      limits->Sample(each.result.demand, run, &each.series);
      RETURN_IF_ERROR(status);
    }
    on_repeat();
  }
  std::vector<PassResult> results;
  for (Case& each : cases) {
    each.result.time = each.series.Result();
    results.push_back(each.result);
  }
  return results;
}

}  // namespace tandem
