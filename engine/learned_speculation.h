#ifndef TANDEM_ENGINE_LEARNED_SPECULATION_H_
#define TANDEM_ENGINE_LEARNED_SPECULATION_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/instant.h"
#include "draft/policy/speculation_policy.h"
#include "engine/learned_head.h"
#include "model/packed_cache.h"
#include "tandem/drafter_kind.h"
#include "tandem/engine_options.h"

namespace tandem {

// Returns the file in EngineOptions::packed_weights that saves what a pair's policy has learned, so
// that the next process starts with it. It is about ten kilobytes of text and may be deleted at any
// time. It holds costs and counts, but no text of users. Each combination of pair, device and
// thread count has its own file; if several processes share one, the last to write it wins. Empty
// if nothing is saved.
std::string LearnedSpeculationFile(const EngineOptions& options, DrafterKind drafter,
                                   std::string_view device_description);

// Loads the policy from the file. NOT_FOUND if the file is missing, DATA_LOSS if it is not a
// complete file of this version, INVALID_ARGUMENT if it is not a regular file or has megabytes. In
// all cases the caller starts from scratch.
absl::StatusOr<SpeculationPolicy> LoadLearnedSpeculation(const std::string& file);

// Replaces the file atomically. Errors name it.
absl::Status SaveLearnedSpeculation(SpeculationPolicy* policy, const std::string& file);

// Returns the files of learned speculation in a folder, those of learned heads included.
std::vector<CachedFile> LearnedFilesIn(const std::string& folder);

// One engine's file, and the file next to it with the counts of a learned head ("head-HASH.txt"):
// at most 16,384 token ids, with how often each was seen recently. Failures are logged as warnings
// and never fail the engine.
class LearnedSpeculation {
 public:
  // With an empty `file` nothing is saved. `head` may be null and must outlive this object.
  explicit LearnedSpeculation(std::string file, LearnedHead* head = nullptr);

  // Replaces `policy` and the head's state with the contents of the files, if they exist.
  void Recall(SpeculationPolicy* policy) const;
  // Writes the files if there were rounds since the last write and that was at least `at_least`
  // ago.
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
