#ifndef TANDEM_ENGINE_LEARNED_SPECULATION_H_
#define TANDEM_ENGINE_LEARNED_SPECULATION_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/instant.h"
#include "draft/policy/speculation_policy.h"
#include "engine/learned_head.h"
#include "tandem/drafter_kind.h"
#include "tandem/engine_options.h"

namespace tandem {

// The file in EngineOptions::packed_weights that keeps what a pair's policy has learned, so that
// the next process starts with it: some ten kilobytes of text, which may be deleted at any time. It
// holds costs and counts, and no text. Pairs, devices and thread counts have a file each; of
// several processes that share one, the last to write it wins. Empty where nothing is kept.
std::string LearnedSpeculationFile(const EngineOptions& options, DrafterKind drafter,
                                   std::string_view device_description);

// The policy in the file. NOT_FOUND if there is none, DATA_LOSS if it is not a whole file of this
// version; the caller starts anew in each case.
absl::StatusOr<SpeculationPolicy> LoadLearnedSpeculation(const std::string& file);

// Replaces the file at once. Errors name it.
absl::Status SaveLearnedSpeculation(SpeculationPolicy* policy, const std::string& file);

// One engine's file, and the one next to it with the counts of a learned head ("head-HASH.txt"): at
// most 16,384 tokens' ids, with how often each was seen lately. Failures are warnings in the log,
// never the engine's.
class LearnedSpeculation {
 public:
  // An empty `file` keeps nothing. `head` may be null, and must outlive this object.
  explicit LearnedSpeculation(std::string file, LearnedHead* head = nullptr);

  // Replaces `policy` and what the head has learned by what is in the files, if they are there.
  void Recall(SpeculationPolicy* policy) const;
  // Writes the files if there were rounds since the last time, and that was `at_least` ago.
  void Keep(SpeculationPolicy* policy, absl::Duration at_least);

 private:
  const std::string file_;
  const std::string head_file_;  // or empty
  LearnedHead* const head_;
  int64_t num_rounds_kept_ = 0;
  Instant last_kept_ = Instant::Now();
};

}  // namespace tandem

#endif  // TANDEM_ENGINE_LEARNED_SPECULATION_H_
