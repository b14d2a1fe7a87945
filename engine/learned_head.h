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

// The head of a draft model, made of the rows that committed text has shown to be worth computing
// (docs/drafters.md). Members belong to the engine's thread, but for facts().
class LearnedHead {
 public:
  // What others may ask about it.
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

  // `draft` has no head yet and must outlive this object.
  LearnedHead(Transformer* draft, const Target& target);

  // Makes the draft's head. Transformer::SetHead's errors.
  absl::Status Make();
  // Learns from what these sessions have committed since they were last here, and makes the head
  // anew where that pays. Only between rounds. What fails is a warning in the log: drafts go on.
  void Learn(absl::Span<const RoundStep> steps, const SpeculationPolicy& policy);

  // What outlives the process. An archive that fails changes nothing.
  void Serialize(StateArchive* archive);
  // After a Serialize that has read.
  void UseWhatWasRead(const SpeculationPolicy& policy);

  // Thread-safe.
  Facts facts() const;

 private:
  void Update(const AcceptanceEstimate& acceptance);
  void Publish();
  std::vector<TokenId> ToDraft(absl::Span<const TokenId> target_tokens) const;

  Transformer* draft_;
  std::vector<TokenId> draft_of_;  // [target tokens] with a vocabulary map: the pair's, or -1
  DraftHead head_;
  mutable absl::Mutex mutex_;
  Facts facts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem

#endif  // TANDEM_ENGINE_LEARNED_HEAD_H_
