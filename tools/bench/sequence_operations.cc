// The operations that read sequences in a KV cache: attention and whole passes.
#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "kvcache/paged_kv_cache.h"
#include "tools/bench/machine_limits.h"
#include "tools/bench/operation_table.h"

namespace tandem {
namespace {

constexpr int kPageSize = 16;

DType DTypeOf(KvDType dtype) {
  switch (dtype) {
    case KvDType::kF32:
      return DType::kF32;
    case KvDType::kBF16:
      return DType::kBF16;
    case KvDType::kInt8:
      return DType::kInt8;
  }
  return DType::kF32;
}

// Fills a cache with numbers of about 0.25 in any format, so that attention over pages that no pass
// has written does not meet NaN or denormal numbers. REQUIRES: every page is free.
void FillCache(Backend* backend, PagedKvCache* cache) {
  constexpr uint32_t kQuarters = 0x3E803E80;  // 0.25 twice in bf16, 0.2505 in f32
  TANDEM_CHECK(cache->num_free_pages() == cache->num_pages());
  const KvLayout& layout = cache->layout();
  const size_t num_groups = (cache->num_pages() + kKvGroupPages - 1) / kKvGroupPages;
  const size_t num_bytes = num_groups * kKvGroupPages * layout.page_bytes();
  const std::vector<uint32_t> piece(layout.piece_words(), kQuarters);
  const size_t piece_bytes = piece.size() * sizeof(uint32_t);
  // A large cache has millions of pieces. Double the filled part instead, which needs few copies.
  auto* const all = static_cast<std::byte*>(cache->LayerView(0).keys);
  backend->Upload({reinterpret_cast<const std::byte*>(piece.data()), piece_bytes}, all);
  for (size_t done = piece_bytes; done < num_bytes; done *= 2) {
    backend->Copy(all, all + done, std::min(done, num_bytes - done));
  }
}

int PagesFor(int tokens) { return (tokens + kPageSize - 1) / kPageSize; }

// Fills the cache and returns `batch` sequences of `tokens` tokens each, which use all of it.
absl::StatusOr<std::vector<KvSequence>> FilledSequences(Backend* backend, PagedKvCache* cache,
                                                        int batch, int tokens) {
  FillCache(backend, cache);
  std::vector<KvSequence> sequences;
  for (int i = 0; i < batch; ++i) {
    sequences.push_back(cache->NewSequence());
    RETURN_IF_ERROR(sequences.back().Extend(tokens));
  }
  return sequences;
}

}  // namespace

// Returns the sequences to measure with at most `most_rows` rows.
std::vector<OperationTable::Sequences> OperationTable::SequencesOf(int most_rows) const {
  std::vector<Sequences> all = {{1, {}}};
  absl::c_copy_if(options_.rows, std::back_inserter(all[0].rows),
                  [&](int rows) { return rows <= most_rows; });
  for (const int batch : options_.batches) {
    if (batch > 1 && most_rows > 0) all.push_back({batch, {1}});
  }
  return all;
}

void OperationTable::AddAttention() {
  const std::set<int> windows = {0, *absl::c_max_element(options_.config.windows)};
  for (const int window : windows) {
    for (const int context : options_.contexts) {
      if (context == 0) continue;  // would measure only the launch
      const int most_rows = options_.rows_follow_context ? max_rows() : context;
      for (const KvDType dtype : options_.kv_dtypes) {
        for (const Sequences& sequences : SequencesOf(most_rows)) {
          Add(sequences.rows.size(), [=, this](OnResult on_result) {
            return RunAttention(sequences, context, window, dtype, on_result);
          });
        }
      }
    }
  }
}

// Calls rotate through layers, so that the KV cache of each is not in the processor's caches.
absl::Status OperationTable::RunAttention(const Sequences& sequences, int context, int window,
                                          KvDType dtype, OnResult on_result) const {
  const ModelConfig& c = options_.config;
  const int batch = sequences.batch;
  const int most_rows = *absl::c_max_element(sequences.rows);
  const auto tokens_with = [&](int rows) {
    return context + (options_.rows_follow_context ? rows : 0);
  };
  const int num_pages = PagesFor(tokens_with(most_rows));  // of a sequence
  KvLayout layout{.num_layers = 1,
                  .num_kv_heads = c.num_kv_heads,
                  .head_dim = c.head_dim,
                  .page_size = kPageSize,
                  .dtype = dtype};
  const int64_t layer_bytes = static_cast<int64_t>(layout.page_bytes()) * num_pages * batch;
  layout.num_layers =
      static_cast<int>(std::min(options_.working_set_bytes / layer_bytes + 1, kMaxCopies));
  ASSIGN_OR_RETURN(const std::unique_ptr<PagedKvCache> cache,
                   PagedKvCache::Create(&backend_, layout, num_pages * batch));
  ASSIGN_OR_RETURN(const std::vector<KvSequence> cached,
                   FilledSequences(&backend_, cache.get(), batch, tokens_with(most_rows)));
  std::vector<int32_t> page_ids;
  for (const KvSequence& sequence : cached) {
    page_ids.insert(page_ids.end(), sequence.pages().begin(), sequence.pages().end());
  }
  ASSIGN_OR_RETURN(const Buffer pages, Uploaded(page_ids, &backend_));
  const int query_size = c.num_heads * c.head_dim;
  ASSIGN_OR_RETURN(const DeviceMatrix queries, Random(most_rows * batch, query_size));
  ASSIGN_OR_RETURN(const DeviceMatrix out, Random(most_rows * batch, query_size));
  const AttentionSizes sizes{.num_heads = c.num_heads,
                             .num_kv_heads = c.num_kv_heads,
                             .head_dim = c.head_dim,
                             .dtype = dtype};
  // One per operation: starts [batch + 1], lengths [batch], and the plan, aligned to 16 bytes.
  std::vector<Buffer> tables;
  const int plan_at = (2 * batch + 4) / 4 * 4;
  for (const int rows : sequences.rows) {
    std::vector<int32_t> table;
    for (int i = 0; i <= batch; ++i) table.push_back(i * rows);
    const std::vector<int32_t> plan = backend_.PlanRows(table, batch * rows, sizes);
    table.resize(plan_at, tokens_with(rows));
    table.insert(table.end(), plan.begin(), plan.end());
    ASSIGN_OR_RETURN(Buffer uploaded, Uploaded(table, &backend_));
    tables.push_back(std::move(uploaded));
  }
  std::vector<Operation> operations;
  for (size_t i = 0; i < tables.size(); ++i) {
    const int rows = sequences.rows[i];
    const int tokens = tokens_with(rows);
    // Row r of the last `rows` attends to tokens - rows + r + 1 positions, or to a window of them,
    // for scores and for sums.
    const bool slides = 0 < window && window < tokens;
    const double seen =
        slides ? static_cast<double>(rows) * window : rows * (tokens - 0.5 * (rows - 1));
    const int read = slides ? std::min(tokens, window + rows - 1) : tokens;
    // If the cache is int8, rounded queries and attention weights take two int8 planes each.
    const bool rounds = options_.bf16_products && dtype != KvDType::kF32;
    const int planes = rounds && dtype == KvDType::kInt8 ? 2 : 1;
    const auto enqueue = [&, rows, i](int turn) {
      const auto* const table = static_cast<const int32_t*>(tables[i].data());
      PagedKvView kv = cache->LayerView(turn % layout.num_layers);
      kv.page_tables = static_cast<const int32_t*>(pages.data());
      kv.lengths = table + batch + 1;
      kv.batch = batch;
      kv.max_pages = num_pages;
      backend_.Attend(
          queries.first(batch * rows),
          {.starts = table, .batch = batch, .num_rows = batch * rows, .plan = table + plan_at}, kv,
          {.scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim)), .window = window},
          out.first(batch * rows), {});
    };
    operations.push_back(Enqueued(
        {.op = "attention",
         .part = slides ? "windowed" : "",
         .dtype = DTypeOf(dtype),
         .rows = rows,
         .batch = batch,
         .context = context,
         .shape = {c.num_heads, c.num_kv_heads, c.head_dim},
         .demand = {.bytes = 8.0 * batch * read * c.num_kv_heads * KvRowWords(dtype, c.head_dim),
                    .place = MachineLimits::PlaceOf(layer_bytes * layout.num_layers),
                    .flops = 4.0 * planes * batch * seen * query_size,
                    .input = rounds ? DotInputOf(DTypeOf(dtype), true) : DotInput::kF32}},
        enqueue, layout.num_layers));
  }
  return RunAll(std::move(operations), on_result);
}

void OperationTable::AddPasses(Transformer* model, KvDType kv_dtype, int most_verified) {
  for (const int context : options_.contexts) {
    for (const Sequences& sequences : SequencesOf(model->context_length() - context)) {
      Add(sequences.rows.size(), [=, this](OnResult on_result) {
        return RunPasses(model, kv_dtype, most_verified, sequences, context, on_result);
      });
    }
  }
}

absl::Status OperationTable::RunPasses(Transformer* model, KvDType kv_dtype, int most_verified,
                                       const Sequences& sequences, int context,
                                       OnResult on_result) const {
  const int batch = sequences.batch;
  const int most_rows = *absl::c_max_element(sequences.rows);
  const KvLayout layout = model->kv_layout(kPageSize, kv_dtype);
  const PassCounter counter(model->config(), static_cast<int64_t>(model->bytes_read_per_pass()),
                            static_cast<int64_t>(layout.page_bytes() / layout.page_size),
                            model->dtype(), options_.bf16_products);
  std::vector<TokenId> tokens;
  for (int i = 0; i < most_rows; ++i) tokens.push_back((7 * i + 1) % model->vocab_size());
  ASSIGN_OR_RETURN(const std::unique_ptr<PagedKvCache> cache,
                   PagedKvCache::Create(&backend_, layout, batch * PagesFor(context + most_rows)));
  {
    // The first pass packs the weights.
    KvSequence kv = cache->NewSequence();
    const ForwardRequest first{.tokens = {tokens.data(), 1}, .kv = &kv, .num_logits = 1};
    RETURN_IF_ERROR(model->Forward({&first, 1}).status());
  }
  ASSIGN_OR_RETURN(std::vector<KvSequence> cached,
                   FilledSequences(&backend_, cache.get(), batch, context));
  std::vector<Operation> operations;
  for (const int rows : sequences.rows) {
    const bool is_prompt = rows > most_verified;
    const PassShape shape{
        .rows = rows, .context = context, .logit_rows = is_prompt ? 1 : rows, .batch = batch};
    const auto run = [&, shape](int) {
      std::vector<ForwardRequest> requests;
      for (KvSequence& sequence : cached) {
        requests.push_back({.tokens = absl::MakeConstSpan(tokens).first(shape.rows),
                            .kv = &sequence,
                            .num_logits = shape.logit_rows,
                            .to_host = LogitsToHost::kNothing});
      }
      absl::Status status = model->Forward(requests).status();
      for (KvSequence& sequence : cached) sequence.Truncate(shape.context);
      return status;
    };
    operations.push_back({.op = "pass",
                          .part = rows == 1   ? "decode"
                                  : is_prompt ? "prefill"
                                              : "verify",
                          .dtype = model->dtype(),
                          .rows = rows,
                          .batch = batch,
                          .context = context,
                          .demand = counter.Of(shape),
                          .run = run,
                          .on_device = [=](int) { model->RepeatPass(); }});
  }
  return RunAll(std::move(operations), on_result);
}

}  // namespace tandem
