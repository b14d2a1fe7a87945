#include "proof/remembered_model.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace tandem {
namespace {

// A token is one number of the cache.
static_assert(sizeof(TokenId) == sizeof(float));
KvLayout TokenLayout(bool has_head) {
  return {.num_layers = has_head ? 2 : 1,
          .num_kv_heads = 1,
          .head_dim = 1,
          .page_size = 16,
          .state_size = has_head ? 1 : 0};
}
constexpr int kTokenPages = 1 << 16;  // a million tokens, touched as they are used
// Rows of one pass of the model: its logits are in memory at once.
constexpr int kRowsPerPass = 64;

absl::string_view KeyOf(absl::Span<const TokenId> tokens) {
  return {reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(TokenId)};
}

}  // namespace

absl::StatusOr<std::unique_ptr<RememberedModel>> RememberedModel::Create(LanguageModel* model,
                                                                         PagedKvCache* model_cache,
                                                                         int64_t max_bytes,
                                                                         bool has_head) {
  const int64_t row_bytes = int64_t{model->head_tokens()} * static_cast<int64_t>(sizeof(float));
  auto remembered = std::unique_ptr<RememberedModel>(new RememberedModel(
      model, model_cache, std::max<int64_t>(max_bytes / row_bytes, 4 * kRowsPerPass)));
  ASSIGN_OR_RETURN(remembered->backend_, MakeCpuBackend({.num_threads = 1}));
  ASSIGN_OR_RETURN(remembered->cache_, PagedKvCache::Create(remembered->backend_.get(),
                                                            TokenLayout(has_head), kTokenPages));
  return remembered;
}

TokenId* RememberedModel::Place(const KvSequence& kv, int position) const {
  const PagedKvView view = cache_->LayerView(0);
  return static_cast<TokenId*>(view.keys) + view.BlockOf(kv.pages()[position / view.page_size], 0) +
         position % view.page_size;
}

const float* RememberedModel::Find(absl::Span<const TokenId> context) const {
  for (const Rows* rows : {&rows_, &passing_rows_}) {
    const auto it = rows->find(KeyOf(context));
    if (it != rows->end()) return it->second.data();
  }
  return nullptr;
}

absl::StatusOr<MatrixView> RememberedModel::Forward(absl::Span<const ForwardRequest> requests) {
  std::vector<int> lengths_before;
  absl::Cleanup undo = [&] {
    for (size_t i = 0; i < lengths_before.size(); ++i) requests[i].kv->Truncate(lengths_before[i]);
  };
  std::vector<Wanted> wanted;
  states_.clear();
  for (const ForwardRequest& r : requests) {
    TANDEM_CHECK(r.kv->cache() == cache_.get());
    if (state_size() > 0) states_.resize(states_.size() + r.tokens.size());
    TANDEM_CHECK(!r.tokens.empty() && r.num_logits <= static_cast<int>(r.tokens.size()));
    const int before = r.kv->length();
    lengths_before.push_back(before);
    RETURN_IF_ERROR(r.kv->Extend(static_cast<int>(r.tokens.size())));
    for (size_t i = 0; i < r.tokens.size(); ++i) {
      *Place(*r.kv, before + static_cast<int>(i)) = r.tokens[i];
    }
    Wanted want{.tokens = {}, .num_rows = r.num_logits};
    if (r.num_logits > 0) {
      want.tokens.resize(r.kv->length());
      for (int i = 0; i < r.kv->length(); ++i) want.tokens[i] = *Place(*r.kv, i);
    }
    wanted.push_back(std::move(want));
  }
  RETURN_IF_ERROR(Compute(wanted));
  const size_t vocab = head_tokens();
  int num_rows = 0;
  for (const Wanted& want : wanted) num_rows += want.num_rows;
  logits_.resize(std::max(logits_.size(), num_rows * vocab));
  float* to = logits_.data();
  for (const Wanted& want : wanted) {
    const absl::Span<const TokenId> tokens = want.tokens;
    for (int i = want.num_rows - 1; i >= 0; --i, to += vocab) {
      const float* row = Find(tokens.first(tokens.size() - i));
      TANDEM_CHECK(row != nullptr);
      std::memcpy(to, row, vocab * sizeof(float));
    }
  }
  std::move(undo).Cancel();
  return MatrixView{.data = logits_.data(),
                    .dtype = DType::kF32,
                    .rows = num_rows,
                    .cols = static_cast<int>(vocab),
                    .stride = static_cast<int64_t>(vocab)};
}

absl::StatusOr<absl::Span<const float>> RememberedModel::RowAfter(
    absl::Span<const TokenId> context) {
  const Wanted want{.tokens = {context.begin(), context.end()}, .num_rows = 1};
  RETURN_IF_ERROR(Compute({&want, 1}));
  return absl::MakeConstSpan(Find(context), head_tokens());
}

// Makes every wanted row known at once.
absl::Status RememberedModel::Compute(absl::Span<const Wanted> wanted) {
  passing_rows_.clear();
  std::vector<Wanted> open;
  absl::flat_hash_set<absl::string_view> planned;  // many sequences want the same
  for (const Wanted& want : wanted) {
    const absl::Span<const TokenId> tokens = want.tokens;
    int num_rows = 0;
    for (int i = 0; i < want.num_rows; ++i) {
      const absl::Span<const TokenId> context = tokens.first(tokens.size() - i);
      if (Find(context) == nullptr && planned.insert(KeyOf(context)).second) num_rows = i + 1;
    }
    if (num_rows > 0) open.push_back({.tokens = want.tokens, .num_rows = num_rows});
  }
  for (size_t begin = 0; begin < open.size();) {
    size_t end = begin;
    int num_rows = 0;
    do {
      num_rows += open[end++].num_rows;
    } while (end < open.size() && num_rows + open[end].num_rows <= kRowsPerPass);
    RETURN_IF_ERROR(ComputePass(absl::MakeSpan(open).subspan(begin, end - begin)));
    begin = end;
  }
  return absl::OkStatus();
}

absl::Status RememberedModel::ComputePass(absl::Span<const Wanted> wanted) {
  std::vector<KvSequence> sequences;
  std::vector<ForwardRequest> passes;
  sequences.reserve(wanted.size());
  for (const Wanted& want : wanted) {
    const absl::Span<const TokenId> tokens = want.tokens;
    sequences.push_back(StartOf(tokens, static_cast<int>(tokens.size()) - want.num_rows));
    passes.push_back({.tokens = tokens.subspan(sequences.back().length()),
                      .kv = &sequences.back(),
                      .num_logits = want.num_rows});
  }
  ASSIGN_OR_RETURN(const MatrixView logits, model_->Forward(passes));
  const float* row = static_cast<const float*>(logits.data);
  for (const Wanted& want : wanted) {
    const absl::Span<const TokenId> tokens = want.tokens;
    for (int i = want.num_rows - 1; i >= 0; --i, row += logits.stride) {
      Rows& rows = static_cast<int64_t>(rows_.size()) < max_rows_ ? rows_ : passing_rows_;
      rows.try_emplace(std::string(KeyOf(tokens.first(tokens.size() - i))), row, row + logits.cols);
      ++num_rows_computed_;
    }
  }
  return absl::OkStatus();
}

// The model's state behind a known beginning of `tokens`, `max_length` of them at most.
KvSequence RememberedModel::StartOf(absl::Span<const TokenId> tokens, int max_length) {
  const Prompt* best = nullptr;
  int best_length = 0;
  for (const Prompt& prompt : prompts_) {
    const auto [ours, theirs] =
        std::mismatch(tokens.begin(), tokens.end(), prompt.tokens.begin(), prompt.tokens.end());
    const int shared =
        std::min({static_cast<int>(ours - tokens.begin()), prompt.kv.length(), max_length});
    if (shared > best_length) {
      best = &prompt;
      best_length = shared;
    }
  }
  if (best == nullptr) return model_cache_->NewSequence();
  KvSequence start = best->kv.Fork();
  start.Truncate(best_length);
  return start;
}

absl::Status RememberedModel::KeepPrompt(absl::Span<const TokenId> prompt) {
  constexpr int kChunk = 256;
  Prompt kept{.tokens = {prompt.begin(), prompt.end()}, .kv = model_cache_->NewSequence()};
  for (absl::Span<const TokenId> left = prompt.first(prompt.size() - 1); !left.empty();) {
    const absl::Span<const TokenId> chunk = left.first(std::min<size_t>(left.size(), kChunk));
    const ForwardRequest pass{.tokens = chunk, .kv = &kept.kv, .num_logits = 0};
    RETURN_IF_ERROR(model_->Forward({&pass, 1}).status());
    left.remove_prefix(chunk.size());
  }
  prompts_.push_back(std::move(kept));
  return absl::OkStatus();
}

}  // namespace tandem
