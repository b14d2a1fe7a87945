#ifndef TANDEM_ENGINE_LEARNED_HEAD_H_
#define TANDEM_ENGINE_LEARNED_HEAD_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "draft/policy/draft_head.h"
#include "draft/policy/speculation_policy.h"
#include "draft/vocabulary_map.h"
#include "model/transformer.h"
#include "tandem/tokenizer.h"

namespace tandem {

struct RoundStep;

// The head of a draft model, consisting of the rows that committed text has shown to be worth
// computing (docs/drafting/drafters.md). Use only on the engine's thread, except facts().
class LearnedHead {
 public:
  // Facts about the head, for reports.
  struct Facts {
    int num_tokens = 0;
    double coverage = 1.0;
    int64_t bytes_read_per_pass = 0;  // by the draft
  };
  // The target's side of a pair.
  struct Target {
    const Tokenizer* tokenizer = nullptr;
    const Transformer* model = nullptr;
    absl::Span<const TokenId> end_tokens;
    const VocabularyMap* vocabulary = nullptr;  // null if the draft's ids are the target's
  };

  // `draft` has no head yet and must outlive this object. `in_one_pass`: whether each of its passes
  // proposes all tokens of a round.
  LearnedHead(Transformer* draft, const Target& target, bool in_one_pass);

  // Makes the draft's head. Errors: Transformer::SetHead's.
  absl::Status Make();
  // Learns from the tokens that these sessions have committed since the last call, and rebuilds the
  // head if that pays off. Call only between rounds. A failure is logged as a warning, and drafting
  // continues.
  void Learn(absl::Span<const RoundStep> steps, const SpeculationPolicy& policy);

  // Reads or writes the state that outlives the process. If reading fails, nothing changes.
  void Serialize(StateArchive* archive);
  // Applies the state that Serialize has read.
  void ApplyLoadedState(const SpeculationPolicy& policy);

  // Thread-safe.
  Facts facts() const;

 private:
  void Update(const AcceptanceEstimate& acceptance);
  void Publish();
  std::vector<TokenId> ToDraft(absl::Span<const TokenId> target_tokens) const;

  Transformer* draft_;
  std::vector<TokenId> draft_of_;  // [target tokens], with a vocabulary map: draft's token or -1
  DraftHead head_;
  mutable absl::Mutex mutex_;
  Facts facts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem

#endif  // TANDEM_ENGINE_LEARNED_HEAD_H_
