#ifndef TANDEM_PROOF_REMEMBERED_MODEL_H_
#define TANDEM_PROOF_REMEMBERED_MODEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kvcache/paged_kv_cache.h"
#include "model/language_model.h"

namespace tandem {

// A model whose rows are computed once and looked up from then on. That changes nothing, because a
// row is a function of the tokens before it alone, which the proof checks bit for bit; and it makes
// hundreds of thousands of generations from one prompt affordable. Its own cache holds the tokens
// themselves, so drafts, rollbacks, forks and page tables work as ever. Thread-compatible.
class RememberedModel final : public LanguageModel {
 public:
  // `model` and `model_cache` compute, and must outlive this object. Rows take `max_bytes` at
  // most: the first to be asked for, mostly the likeliest, stay. With `has_head` its pages have a
  // layer more, and passes leave a state for each row, for a RememberedHead.
  static absl::StatusOr<std::unique_ptr<RememberedModel>> Create(LanguageModel* model,
                                                                 PagedKvCache* model_cache,
                                                                 int64_t max_bytes,
                                                                 bool has_head = false);

  int vocab_size() const override { return model_->vocab_size(); }
  int head_tokens() const override { return model_->head_tokens(); }
  absl::Span<const TokenId> head_ids() const override { return model_->head_ids(); }
  int context_length() const override { return model_->context_length(); }
  // Sequences of this model belong to this cache, and its memory to this backend.
  PagedKvCache* cache() { return cache_.get(); }
  Backend* backend() { return backend_.get(); }
  // Nothing is in these states: RememberedHead knows from the tokens what the model leaves.
  int state_size() const override { return cache_->layout().state_size; }
  ConstMatrixView states() const override {
    return {states_.data(), DType::kF32, static_cast<int>(states_.size()), 1, 1};
  }

  absl::StatusOr<MatrixView> Forward(absl::Span<const ForwardRequest> requests) override;

  // The logits behind `context`, [head_tokens()]; valid until the next call of a member.
  absl::StatusOr<absl::Span<const float>> RowAfter(absl::Span<const TokenId> context);

  // Keeps the model's own state behind `prompt`, so that rows behind its continuations cost their
  // new tokens only.
  absl::Status KeepPrompt(absl::Span<const TokenId> prompt);

  int64_t num_rows_computed() const { return num_rows_computed_; }

 private:
  struct Prompt {
    std::vector<TokenId> tokens;
    KvSequence kv;  // of the model, all of `tokens` but the last
  };
  // Rows behind the first `length - num_rows + 1`, ..., `length` tokens of `tokens`.
  struct Wanted {
    std::vector<TokenId> tokens;
    int num_rows = 0;
  };

  RememberedModel(LanguageModel* model, PagedKvCache* model_cache, int64_t max_rows)
      : model_(model), model_cache_(model_cache), max_rows_(max_rows) {}

  absl::Status Compute(absl::Span<const Wanted> wanted);
  absl::Status ComputePass(absl::Span<const Wanted> wanted);
  const float* Find(absl::Span<const TokenId> context) const;
  KvSequence StartOf(absl::Span<const TokenId> tokens, int max_length);
  TokenId* Place(const KvSequence& kv, int position) const;

  LanguageModel* model_;
  PagedKvCache* model_cache_;
  int64_t max_rows_;
  std::unique_ptr<Backend> backend_;  // of the tokens' cache
  std::unique_ptr<PagedKvCache> cache_;
  std::vector<Prompt> prompts_;
  using Rows = absl::flat_hash_map<std::string, std::vector<float>>;  // by the tokens' bytes
  Rows rows_;
  Rows passing_rows_;          // of the last pass, for which there is no room
  std::vector<float> logits_;  // of the last pass
  std::vector<float> states_;  // of the last pass, [rows, 1], where there is a head
  int64_t num_rows_computed_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_PROOF_REMEMBERED_MODEL_H_
