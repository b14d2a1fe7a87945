// How an engine's ranks find each other, load their parts and follow rank 0.
#ifndef TANDEM_ENGINE_TENSOR_PARALLEL_H_
#define TANDEM_ENGINE_TENSOR_PARALLEL_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/ranks/rank_group.h"
#include "model/ranks/shared_ranks.h"
#include "model/transformer.h"
#include "tandem/engine_options.h"

namespace tandem {

// Describes a model of which every rank of a group loads its part.
struct RankModel {
  std::string path;
  std::string quantize = "none";  // a name of kQuantizations
  bool requantizes = false;       // Transformer::Quantize::kAll
  int head_tokens = 0;            // Transformer::LoadOptions
  int context = 0;
  std::string kv_cache = "f32";  // not "auto"
  int first_slot = 0;
};

// Rank 0's side.
class LeadingRank {
 public:
  // Starts the other ranks, or waits for those of other machines (EngineOptions::rendezvous).
  static absl::StatusOr<std::unique_ptr<LeadingRank>> Start(const EngineOptions& options);
  ~LeadingRank();

  RankGroup* group() { return devices_ != nullptr ? devices_.get() : group_.get(); }
  int num_threads() const;  // of this rank

  // Makes the other ranks open their backends, which must compute the same bits as this rank's
  // `backend`. If that is device n, rank r uses device n + r of the machine. Call before the
  // functions below.
  absl::Status Open(Backend* backend);
  // Makes the other ranks start loading their parts; this rank loads its own meanwhile.
  absl::Status Load(const RankModel& model);
  // Memory that the parts of a model need.
  struct Needs {
    int64_t page_bytes = 0;     // of a page of the model's cache
    int64_t bytes_to_pack = 0;  // of its weights, packed at load or by the first pass
  };
  // Waits until all ranks have loaded their parts; `model` is this rank's part. Returns the sum of
  // all ranks' needs on one machine, the largest part's needs if each rank has a device, and this
  // rank's needs on several machines, each of which limits the pages by itself. The error is that
  // of the first rank that failed.
  absl::StatusOr<Needs> AwaitLoaded(const Transformer& model, const Backend& backend,
                                    KvDType kv_cache);
  // Returns the number of pages for which every machine has memory, for the models loaded so far;
  // practically unlimited if all ranks are on this machine. INVALID_ARGUMENT naming `kv_memory` if
  // a machine does not have memory for a page.
  absl::StatusOr<int64_t> MostPages() const;
  // Makes all ranks create caches of this many pages for their models.
  absl::Status MakeCaches(int64_t num_pages);
  // Descriptions of each rank's part of the last loaded model.
  const std::vector<std::string>& descriptions() const { return descriptions_; }

 private:
  explicit LeadingRank(const EngineOptions& options) : options_(options) {}
  void Lost(const absl::Status& why);
  void Tell(const absl::Status& why);  // once

  const EngineOptions options_;
  std::atomic<bool> is_over_{false};
  std::unique_ptr<RankGroup> group_;
  std::unique_ptr<RankGroup> devices_;  // the group's devices, if it uses devices
  std::unique_ptr<RankProcesses> processes_;
  std::vector<std::string> descriptions_;
  std::vector<int64_t> most_pages_;  // of each rank
};

// The memory that a rank's own part of a model needs, and a description of the part.
LeadingRank::Needs NeedsOf(const Transformer& model, const Backend& backend, int page_size,
                           KvDType kv_cache);
std::string DescriptionOfPart(const Transformer& model);

// Joins the group of `own`, whose rank is above 0, loads this rank's parts of the models, and
// computes its part of each pass. Returns OK when rank 0 has ended. Models, memory and device are
// those of `own`. The models must be the same as rank 0's, else both sides return
// FAILED_PRECONDITION.
absl::Status FollowRankZero(const EngineOptions& own);
// The same for a process that LeadingRank has started, with rank 0's options.
absl::Status FollowRankZero(int rank);

}  // namespace tandem

#endif  // TANDEM_ENGINE_TENSOR_PARALLEL_H_
