#ifndef TANDEM_INCLUDE_TANDEM_ENGINE_OPTIONS_H_
#define TANDEM_INCLUDE_TANDEM_ENGINE_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tandem/acceptance_rule.h"
#include "tandem/draft_tokens.h"
#include "tandem/drafter_kind.h"

namespace tandem {

// Where an engine's callbacks run.
enum class CallbackThread {
  kOwn,     // threads that do nothing else: a callback may take its time and use the engine
  kEngine,  // the engine's, which saves a change of threads per round: a callback must return at
            // once, and must neither wait for the engine nor destroy it
};

// What each option means and may be: engine_parameters.h. Here stands what a library has beyond
// that.
struct EngineOptions {
  // A name brings the draft that is known for it (model_places.h); a path stands for itself alone.
  std::string target{};
  std::string draft{};  // empty for none
  DrafterKind drafter = DrafterKind::kAuto;
  // Whether requests may name any other drafter that can run: the draft is loaded even where
  // `drafter` does without. Else only kNone.
  bool all_drafters = false;
  int draft_tokens = kAutoDraftTokens;
  AcceptanceRule verifier = AcceptanceRule::kAuto;
  std::string device = "auto";
  int threads = 0;  // 0: the physical cores
  std::string compute = "auto";
  std::string quantize = "none";
  std::string draft_quantize = "auto";
  int draft_head_tokens = kAutoDraftHeadTokens;
  int draft_window = kAutoDraftWindow;  // docs/draft_length.md
  std::string kv_cache = "auto";
  std::string draft_kv_cache{};  // empty for the same
  int64_t kv_memory_bytes = 0;   // 0: a quarter of the free memory
  int64_t draft_memory_bytes = int64_t{16} << 20;
  int page_size = 16;
  int context = 0;  // 0 does not limit it
  int max_batch = 8;
  int max_generations = 1024;  // not ended yet, or ended and not waited for
  int chunk_tokens = 0;        // 0: 1024 on a CUDA device, else 256
  bool prefix_cache = true;    // keep prompts' pages for later requests
  // Packed weights are kept where memory is the host's, next to what speculation has learned
  // (engine/learned_speculation.h); empty for nowhere. Files that are no longer used stay until
  // they are removed.
  std::string packed_weights{};
  // The stores and the exchange of pages want the prefix cache. Empty for none.
  std::string kv_store{};  // docs/kv_store.md
  int64_t kv_store_bytes = int64_t{10} << 30;
  std::string kv_transfer{};         // docs/scale_out.md
  std::string kv_transfer_secret{};  // that all workers share; empty only for a loopback address
  int64_t kv_transfer_bytes = int64_t{1} << 30;
  int kv_transfer_lease_seconds = 30;
  std::string kv_events{};  // docs/kv_events.md
  std::string kv_events_replay{};
  std::string kv_events_topic{};
  // Ranks (docs/tensor_parallel.md). This process starts the others; `threads` are those of each,
  // where 0 shares the cores out.
  int tensor_parallel = 1;
  bool draft_tensor_parallel = false;
  // The program whose command `rank` the others run: "" for this one if it is tandem, else for the
  // first `tandem` in the path.
  std::string rank_program{};
  // Ranks on several machines. Rank 0 has the engine, and starts no process; the others follow it.
  int rank = 0;
  std::string rendezvous{};         // empty where all are on this machine
  std::string rendezvous_secret{};  // that all ranks share; empty only for a loopback address
  // Called once, on a thread that does nothing else, if one of them ends too early. All requests
  // fail from then on.
  std::function<void(const absl::Status& why)> on_rank_failure{};
  std::vector<std::string> allow_unknown_config{};  // as the error names them
  // Called on the calling thread of Engine::Create while the weights of a model are written to
  // `packed_weights`: with how many of its parameters have been, last with all.
  std::function<void(int64_t packed, int64_t total)> on_packing{};
  bool warm_up = false;  // pack weights at load, not in the first request's pass
  CallbackThread callback_thread = CallbackThread::kOwn;

  const std::string& kv_cache_of_draft() const {
    return draft_kv_cache.empty() ? kv_cache : draft_kv_cache;
  }
  // INVALID_ARGUMENT naming the field, its value and the allowed values.
  absl::Status Validate() const;
};

// Whether EngineOptions::draft is the target itself: "self" or "self:FORMAT".
bool IsSelfDraft(absl::string_view draft);

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_ENGINE_OPTIONS_H_
