#ifndef TANDEM_PROOF_REMEMBERED_HEAD_H_
#define TANDEM_PROOF_REMEMBERED_HEAD_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kvcache/paged_kv_cache.h"
#include "model/language_model.h"
#include "proof/remembered_model.h"

namespace tandem {

// A draft head next to a RememberedModel. Rows of drafted tokens read the head's own states, the
// others the target's. It computes them by that definition, from passes of the target over the
// text, and not from states that a drafter hands on: a drafter's rows are compared with its rows.
// Its layer of the remembered target's cache holds the tokens. Thread-compatible.
class RememberedHead final : public RememberedRows {
 public:
  // What computes. All pointers must outlive this object.
  struct Parts {
    LanguageModel* head = nullptr;
    LanguageModel* target = nullptr;        // whose states the head reads
    PagedKvCache* cache = nullptr;          // of both
    Backend* backend = nullptr;             // of both
    RememberedModel* remembered = nullptr;  // the target as sequences of this see it
  };
  RememberedHead(const Parts& parts, int64_t max_bytes);

  int read_state_size() const override { return 1; }
  // REQUIRES: two tokens or more.
  absl::Status KeepPrompt(absl::Span<const TokenId> prompt) override;

 protected:
  int CostOf(const Wanted& wanted) const override;
  absl::Status ComputePass(absl::Span<const Wanted> wanted) override;

 private:
  struct Reading;  // a wanted row's, while it is computed

  size_t state_bytes() const { return parts_.head->read_state_size() * sizeof(float); }
  absl::Status ReadTexts(std::vector<Reading>* readings);
  absl::Status ReadRows(std::vector<Reading>* readings);
  absl::Status ReadDrafts(std::vector<Reading>* readings);
  void KeepDrafted(const Wanted& wanted, int num_drafted, const float* row);
  void KeepText(Reading reading);
  absl::StatusOr<Reading> StartOf(const Wanted& wanted);

  Parts parts_;
  size_t next_recent_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_PROOF_REMEMBERED_HEAD_H_
