#ifndef TANDEM_INCLUDE_TANDEM_ENGINE_OPTIONS_H_
#define TANDEM_INCLUDE_TANDEM_ENGINE_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tandem/acceptance_rule.h"
#include "tandem/draft_tokens.h"
#include "tandem/drafter_kind.h"
#include "tandem/number_formats.h"

namespace tandem {

// The threads on which an engine's callbacks run.
enum class CallbackThread {
  kOwn,     // dedicated threads: a callback may block and may use the engine
  kEngine,  // the engine's thread, which saves a thread switch per round: a callback must return
            // at once, and must neither wait for the engine nor destroy it
};

// engine_parameters.h has the meaning and allowed values of each option. Comments here add what
// only users of the library need.
struct EngineOptions {
  // A model's name also selects the draft that is known for it (model_places.h); a path does not.
  std::string target{};
  std::string draft{};  // empty for none
  DrafterKind drafter = DrafterKind::kAuto;
  // Whether requests may name any drafter that can run; the draft is then loaded even if `drafter`
  // does not need it. Otherwise requests may name only `drafter` and kNone.
  bool all_drafters = false;
  int draft_tokens = kAutoDraftTokens;
  AcceptanceRule verifier = AcceptanceRule::kAuto;
  std::string device = "auto";
  std::string cuda_tune = "load";
  int threads = 0;  // 0: the physical cores
  CpuCompute compute = CpuCompute::kAuto;
  Quantization quantize = Quantization::kNone;
  Quantization draft_quantize = Quantization::kAuto;
  int draft_head_tokens = kAutoDraftHeadTokens;
  int draft_window = kAutoDraftWindow;  // docs/drafting/draft_length.md
  MaskToken draft_mask_token = MaskToken::kAuto;
  KvCacheType kv_cache = KvCacheType::kAuto;
  std::optional<KvCacheType> draft_kv_cache{};  // none: the same as kv_cache
  int64_t kv_memory_bytes = 0;                  // 0: a quarter of the free memory
  int64_t draft_memory_bytes = int64_t{16} << 20;
  std::vector<std::string> draft_texts{};  // files, for the tenant without a salt
  int64_t draft_text_bytes = int64_t{64} << 20;
  int page_size = 16;
  int context = 0;  // 0: no limit
  int max_batch = 8;
  int max_generations = 1024;  // limit of generations that have not ended or were not waited for
  int chunk_tokens = 0;        // 0: 1024 on a CUDA device, else 256
  bool prefix_cache = true;    // keep pages of prompts for later requests
  // Folder for packed weights, which are kept if the backend uses host memory, and for what
  // speculation has learned (engine/learned_speculation.h). Empty: nothing is kept.
  std::string packed_weights{};
  // Limit of the packed weights in that folder. After a file was written, the least recently used
  // others are removed. 0: no limit.
  int64_t packed_weights_bytes = int64_t{20} << 30;
  // kv_store, kv_transfer and kv_events require the prefix cache. Empty turns each off.
  std::string kv_store{};  // docs/kv_store.md
  int64_t kv_store_bytes = int64_t{10} << 30;
  std::string kv_transfer{};         // docs/scale_out.md
  std::string kv_transfer_secret{};  // of all workers, required; two lines while it is replaced
  std::string kv_transfer_peers{};   // empty: the network of kv_transfer's address
  std::string kv_transfer_fabric = "tcp";
  int64_t kv_transfer_bytes = int64_t{1} << 30;
  int kv_transfer_lease_seconds = 30;
  std::string kv_events{};  // docs/kv_events.md
  std::string kv_events_replay{};
  std::string kv_events_topic{};
  // Ranks (docs/tensor_parallel.md). This process starts the others. `threads` counts per rank; 0
  // divides the cores among them.
  int tensor_parallel = 1;
  bool draft_tensor_parallel = false;
  // The program that runs the other ranks, with its command `rank`. Empty: this program if it is
  // tandem, else the first `tandem` in PATH.
  std::string rank_program{};
  // Ranks on several machines. Rank 0 has the engine and does not start processes; the others
  // follow it.
  int rank = 0;
  std::string rendezvous{};         // empty: all ranks are on this machine
  std::string rendezvous_secret{};  // of all ranks, required; two lines while it is replaced
  // Called once, on a thread of the engine, if a rank ends too early. All requests fail from then
  // on. Must not destroy the engine.
  std::function<void(const absl::Status& why)> on_rank_failure{};
  // Called once, on the engine's thread, with Engine::health() when that becomes an error. Must not
  // destroy the engine.
  std::function<void(const absl::Status& why)> on_device_failure{};
  std::vector<std::string> allow_unknown_config{};  // as errors name them
  // Called on the calling thread of Engine::Create while a model's weights are packed for
  // `packed_weights`. `packed` counts the parameters packed so far; in the last call it equals
  // `total`.
  std::function<void(int64_t packed, int64_t total)> on_packing{};
  bool warm_up = false;  // pack weights at load rather than in the first request's pass
  CallbackThread callback_thread = CallbackThread::kOwn;

  KvCacheType kv_cache_of_draft() const { return draft_kv_cache.value_or(kv_cache); }
  // INVALID_ARGUMENT naming the field, its value and the allowed values.
  absl::Status Validate() const;
};

// EngineOptions::draft: the best draft that is known for the target and is on this machine, or
// none.
inline constexpr char kAutoDraft[] = "auto";
// Whether EngineOptions::draft is the target itself: "self" or "self:FORMAT".
bool IsSelfDraft(absl::string_view draft);

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_ENGINE_OPTIONS_H_
