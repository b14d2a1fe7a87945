#ifndef TANDEM_PROOF_REMEMBERED_MODEL_H_
#define TANDEM_PROOF_REMEMBERED_MODEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kvcache/paged_kv_cache.h"
#include "model/language_model.h"

namespace tandem {

// A model whose rows are computed once and then looked up. The results are the same, because a row
// depends only on the tokens before it and on how many of them were drafted, which the proof checks
// bit for bit. This makes hundreds of thousands of generations from one prompt affordable. Its
// layer of a cache holds the tokens themselves, so drafts, rollbacks, forks and page tables work as
// in any model. Thread-compatible.
class RememberedRows : public LanguageModel {
 public:
  int vocab_size() const override { return model_->vocab_size(); }
  int head_tokens() const override { return model_->head_tokens(); }
  absl::Span<const TokenId> head_ids() const override { return model_->head_ids(); }
  int context_length() const override { return model_->context_length(); }
  // The states are empty, because a row depends only on the tokens.
  int state_size() const override { return cache_->layout().state_size; }
  ConstMatrixView states() const override {
    return {states_.data(), DType::kF32, static_cast<int>(states_.size()), 1, 1};
  }
  // Sequences of this model belong to this cache.
  PagedKvCache* cache() const { return cache_; }

  absl::StatusOr<MatrixView> Forward(absl::Span<const ForwardRequest> requests) override;

  // Returns the logits after `context`, whose last `num_drafted` tokens were drafted (which matters
  // to a head only): [head_tokens()], or with head_ids(), one for each token up to the last of
  // them, with -infinity for tokens that are not among them. Valid until the next call of a member.
  absl::StatusOr<absl::Span<const float>> RowAfter(absl::Span<const TokenId> context,
                                                   int num_drafted = 0);

  // Keeps the model's state after `prompt`, so that rows after its continuations cost only their
  // new tokens.
  virtual absl::Status KeepPrompt(absl::Span<const TokenId> prompt) = 0;

  int64_t num_rows_computed() const { return num_rows_computed_; }

 protected:
  static constexpr int kRowsPerPass = 64;  // whose logits are in memory at the same time

  struct Wanted {
    std::vector<TokenId> tokens;
    int num_drafted = 0;

    int num_read() const { return static_cast<int>(tokens.size()) - 1 - num_drafted; }
  };
  // The model's state after a text.
  struct Text {
    std::vector<TokenId> tokens;
    KvSequence kv;  // of all tokens
    Buffer states;  // read by a head, f32 [tokens, read_state_size]
  };

  // `model` computes the rows. They use about `max_bytes` at most; the first rows, mostly the
  // likeliest, are kept. Tokens are stored in layer `layer` of `cache`. All must outlive this
  // object.
  RememberedRows(LanguageModel* model, PagedKvCache* cache, int layer, int64_t max_bytes);

  // Returns the number of rows in a pass that computes `wanted`.
  virtual int CostOf(const Wanted& /*wanted*/) const { return 1; }
  // Computes these rows and keeps them. Rows of one sequence are adjacent.
  virtual absl::Status ComputePass(absl::Span<const Wanted> wanted) = 0;
  void Keep(absl::Span<const TokenId> tokens, int num_drafted, const float* row);
  // Returns the kept text with the longest common prefix with `tokens`, and the length of that
  // prefix, at most `most`; null if there is none.
  std::pair<const Text*, int> ClosestText(absl::Span<const TokenId> tokens, int most) const;

  LanguageModel* model_;
  PagedKvCache* cache_;
  std::vector<Text> prompts_;
  std::vector<Text> recent_;  // texts read recently, which are likely to continue

 private:
  float* Place(const KvSequence& kv, int layer, int position, bool is_own) const;
  absl::Status Compute(absl::Span<const Wanted> wanted);
  const float* Find(const Wanted& wanted) const;

  int layer_;
  int64_t max_rows_;
  using Rows =
      absl::flat_hash_map<std::string, std::vector<float>>;  // by the tokens' bytes and num_drafted
  Rows rows_;
  Rows passing_rows_;          // of the last pass, if rows_ is full
  std::vector<float> logits_;  // of the last pass
  std::vector<float> states_;  // of the last pass, [rows, 1]
  std::vector<float> row_;     // of the last RowAfter
  int64_t num_rows_computed_ = 0;
};

// A model that does not distinguish drafted tokens, with a cache of its own for the tokens.
class RememberedModel final : public RememberedRows {
 public:
  // `model` and `model_cache` compute the rows, and must outlive this object. With `has_head`,
  // pages have one more layer and passes leave a state for each row, both for a RememberedHead.
  static absl::StatusOr<std::unique_ptr<RememberedModel>> Create(LanguageModel* model,
                                                                 PagedKvCache* model_cache,
                                                                 int64_t max_bytes,
                                                                 bool has_head = false);
  Backend* backend() { return backend_.get(); }  // of the cache's memory
  absl::Status KeepPrompt(absl::Span<const TokenId> prompt) override;

 protected:
  absl::Status ComputePass(absl::Span<const Wanted> wanted) override;

 private:
  RememberedModel(LanguageModel* model, PagedKvCache* model_cache, int64_t max_bytes,
                  std::unique_ptr<Backend> backend, std::unique_ptr<PagedKvCache> cache)
      : RememberedRows(model, cache.get(), /*layer=*/0, max_bytes),
        model_cache_(model_cache),
        backend_(std::move(backend)),
        own_cache_(std::move(cache)) {}

  PagedKvCache* model_cache_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<PagedKvCache> own_cache_;
};

// A draft head for a RememberedModel. Rows of drafted tokens read the head's own states, other rows
// the target's. It computes rows by this definition from passes of the target over the text, and
// not from states that a drafter passes on, because a drafter's rows are compared with its rows.
// Its layer of the remembered target's cache holds the tokens. Thread-compatible.
class RememberedHead final : public RememberedRows {
 public:
  // The parts that compute rows. All of them must outlive this object.
  struct Parts {
    LanguageModel* head = nullptr;
    LanguageModel* target = nullptr;        // the head reads its states
    PagedKvCache* cache = nullptr;          // of both
    Backend* backend = nullptr;             // of both
    RememberedModel* remembered = nullptr;  // the target for sequences of this model
  };
  RememberedHead(const Parts& parts, int64_t max_bytes);

  int read_state_size() const override { return 1; }
  // REQUIRES: two tokens or more.
  absl::Status KeepPrompt(absl::Span<const TokenId> prompt) override;

 protected:
  int CostOf(const Wanted& wanted) const override;
  absl::Status ComputePass(absl::Span<const Wanted> wanted) override;

 private:
  struct Reading;  // the state of one row's computation

  size_t state_bytes() const { return parts_.head->read_state_size() * sizeof(float); }
  absl::Status ReadTexts(std::vector<Reading>* readings);
  absl::Status ReadRows(std::vector<Reading>* readings);
  void KeepText(Reading reading);
  absl::StatusOr<Reading> StartOf(const Wanted& wanted);

  Parts parts_;
  size_t next_recent_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_PROOF_REMEMBERED_MODEL_H_
