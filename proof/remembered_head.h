#ifndef TANDEM_PROOF_REMEMBERED_HEAD_H_
#define TANDEM_PROOF_REMEMBERED_HEAD_H_

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
#include "proof/remembered_model.h"

namespace tandem {

// A draft head next to a RememberedModel, with rows that are computed once, too. Such a row is a
// function of the tokens before it and of how many of these were drafted: their rows read the
// head's own states, the others the target's. It computes them by that definition, from passes of
// the target over the text, and not from states that a drafter hands on: a drafter's rows are
// compared with its rows. Its layer of the remembered target's cache holds the tokens.
// Thread-compatible.
class RememberedHead final : public LanguageModel {
 public:
  // What computes. All pointers must outlive this object.
  struct Parts {
    LanguageModel* head = nullptr;
    LanguageModel* target = nullptr;        // whose states the head reads
    PagedKvCache* cache = nullptr;          // of both
    Backend* backend = nullptr;             // of both
    RememberedModel* remembered = nullptr;  // the target as sequences of this see it
  };
  // Rows take `max_bytes` at most: the first to be asked for stay.
  RememberedHead(const Parts& parts, int64_t max_bytes);

  int vocab_size() const override { return parts_.head->vocab_size(); }
  int head_tokens() const override { return parts_.head->head_tokens(); }
  absl::Span<const TokenId> head_ids() const override { return parts_.head->head_ids(); }
  int context_length() const override { return parts_.head->context_length(); }
  int state_size() const override { return 1; }
  int read_state_size() const override { return 1; }
  ConstMatrixView states() const override {
    return {states_.data(), DType::kF32, static_cast<int>(states_.size()), 1, 1};
  }

  absl::StatusOr<MatrixView> Forward(absl::Span<const ForwardRequest> requests) override;

  // The logits after `context`, whose last `num_drafted` tokens were drafted, over the target's
  // tokens up to the last that the head has; -infinity for others. Valid until the next call of a
  // member. REQUIRES: two tokens are not drafted.
  absl::StatusOr<absl::Span<const float>> RowAfter(absl::Span<const TokenId> context,
                                                   int num_drafted);

  // Keeps the state of both models after `prompt`, so that rows after its continuations cost their
  // new tokens only.
  absl::Status KeepPrompt(absl::Span<const TokenId> prompt);

 private:
  // Both models after a text: the head's rows of all its tokens but the first are in the pages.
  struct Text {
    std::vector<TokenId> tokens;
    KvSequence kv;
    Buffer states;  // of the target, f32 [tokens, read_state_size]
  };
  struct Wanted {
    std::vector<TokenId> tokens;
    int num_drafted = 0;

    int num_read() const { return static_cast<int>(tokens.size()) - 1 - num_drafted; }
  };
  struct Reading;  // a wanted row's, while it is computed

  size_t state_bytes() const { return parts_.head->read_state_size() * sizeof(float); }
  float* Place(const KvSequence& kv, int layer, int position, bool is_own) const;
  const float* Find(const Wanted& wanted) const;
  absl::Status Compute(absl::Span<const Wanted> wanted);
  absl::Status ComputePass(absl::Span<const Wanted> wanted);
  absl::Status ReadTexts(std::vector<Reading>* readings);
  absl::Status ReadRows(std::vector<Reading>* readings);
  absl::Status ReadDrafts(std::vector<Reading>* readings);
  void Keep(const Wanted& wanted, int num_drafted, const float* row);
  void KeepText(Reading reading);
  absl::StatusOr<Reading> StartOf(const Wanted& wanted);

  Parts parts_;
  int64_t max_rows_;
  std::vector<Text> prompts_;
  std::vector<Text> recent_;  // read not long ago: texts go on
  size_t next_recent_ = 0;
  using Rows =
      absl::flat_hash_map<std::string, std::vector<float>>;  // by the tokens' bytes and num_drafted
  Rows rows_;
  Rows passing_rows_;          // of the last pass, which do not fit
  std::vector<float> logits_;  // of the last pass
  std::vector<float> states_;  // of the last pass: nothing is in them
  std::vector<float> row_;     // of the last RowAfter
};

}  // namespace tandem

#endif  // TANDEM_PROOF_REMEMBERED_HEAD_H_
