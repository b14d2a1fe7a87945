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

struct EngineOptions {
  // A folder with config.json, a tokenizer and *.safetensors, a GGUF file, or the name of a model
  // that comes with the program or was fetched. A name brings the draft that is known for it
  // (model_places.h); a path stands for itself alone.
  std::string target{};
  // In the same forms, without a tokenizer if it has the target's; empty for none. "self:FORMAT" is
  // the target's own weights in another format of kernels/quantize.h, "self" in the best of 4 bits.
  std::string draft{};
  DrafterKind drafter = DrafterKind::kAuto;
  // Whether requests may name any other drafter that can run: the draft is loaded even where
  // `drafter` does without. Else only kNone.
  bool all_drafters = false;
  int draft_tokens = kAutoDraftTokens;  // k, the most tokens proposed per round; 0: plain decoding
  AcceptanceRule verifier = AcceptanceRule::kAuto;
  std::string device = "auto";  // "cpu", "cuda:<n>", or "auto": CUDA if present, else CPU
  int threads = 0;              // of the CPU; 0: the physical cores
  // Activations in CPU products: "auto", "f32", "bf16". With "f32" quantised checkpoints become
  // floats.
  std::string compute = "auto";
  std::string quantize = "none";  // the target's weights of floats at load (kernels/quantize.h)
  // The draft's weights, of blocks too where the format is smaller. "auto": to four bits where that
  // pays (docs/drafters.md).
  std::string draft_quantize = "auto";
  // Tokens that the draft can propose, those of the lowest ids: its head has no other rows then. 0
  // for all; auto: which and how many is learned (docs/drafters.md).
  int draft_head_tokens = kAutoDraftHeadTokens;
  // What the draft reads of a longer context: the first few tokens and so many of the last
  // (docs/draft_length.md); 0 for all, kAutoDraftWindow for what suits long prompts.
  int draft_window = kAutoDraftWindow;
  // The target's cache holds "f32", "bf16" or "int8"; "auto" is bf16 on a CUDA device, where tensor
  // cores attend to bf16 alone, and f32 on a CPU.
  std::string kv_cache = "auto";
  std::string draft_kv_cache{};  // what the draft's holds; empty for the same
  int64_t kv_memory_bytes = 0;   // both caches together; 0: a quarter of the free memory
  // What earlier texts went on with is remembered in so many bytes, to draft from; 0 remembers
  // nothing. Half is for requests without a cache_salt, the rest for 16 tenants.
  int64_t draft_memory_bytes = int64_t{16} << 20;
  int page_size = 16;          // tokens per page
  int context = 0;             // limits the target's context, in tokens; 0 does not
  int max_batch = 8;           // sequences decoded together; more wait
  int max_generations = 1024;  // not ended yet, or ended and not waited for
  int chunk_tokens = 0;        // prompt tokens read per pass; 0: 1024 on a CUDA device, else 256
  bool prefix_cache = true;    // keep prompts' pages for later requests
  // The folder that keeps the packed weights of large models for later starts to map, where memory
  // is the host's, and what speculation has learned (engine/learned_speculation.h); empty for none.
  // Files that are no longer used stay until they are removed.
  std::string packed_weights{};
  // The folder that keeps pages of both caches for later processes (docs/kv_store.md), and the most
  // bytes that it may have; empty for none. Wants the prefix cache.
  std::string kv_store{};
  int64_t kv_store_bytes = int64_t{10} << 30;
  // "HOST:PORT", where this engine sends and fetches cache pages (docs/scale_out.md), as other
  // workers reach it; port 0 is any that is free; empty for none. Wants the prefix cache.
  std::string kv_transfer{};
  // That all workers share. Empty only where HOST is a loopback address.
  std::string kv_transfer_secret{};
  int64_t kv_transfer_bytes = int64_t{1} << 30;  // of pages kept for other workers, at most
  int kv_transfer_lease_seconds = 30;            // for which a prompt waits to be fetched
  // Where events of the target's prefix cache are published (docs/kv_events.md),
  // as an endpoint of ZeroMQ to bind, such as "tcp://*:5557"; where those that were missed can be
  // asked for; and the topic. Empty for none. Wants the prefix cache.
  std::string kv_events{};
  std::string kv_events_replay{};
  std::string kv_events_topic{};
  // How many processes compute the target's passes together, each its own part of every layer, with
  // the bits of one (docs/tensor_parallel.md). This one starts the others. `threads` are then those
  // of each; 0 shares the cores out.
  int tensor_parallel = 1;
  bool draft_tensor_parallel = false;  // the draft's passes, too; else this process has the draft
  // The program whose command `rank` the others run: "" for this one if it is tandem, else for the
  // first `tandem` in the path.
  std::string rank_program{};
  // Ranks on several machines (docs/tensor_parallel.md): which of tensor_parallel's this process
  // is, and "HOST:PORT", where rank 0 listens for the others. Rank 0 has the engine, and starts no
  // process; the others follow it. Empty where all are on this machine.
  int rank = 0;
  std::string rendezvous{};
  // That all ranks share. Empty only where HOST is a loopback address.
  std::string rendezvous_secret{};
  // Called once, on a thread that does nothing else, if one of them ends too early. All requests
  // fail from then on.
  std::function<void(const absl::Status& why)> on_rank_failure{};
  // Keys of either config.json that are ignored though they are not known and might change what the
  // model computes: as the error names them.
  std::vector<std::string> allow_unknown_config{};
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

// INVALID_ARGUMENT naming `draft_tokens` unless it is kAutoDraftTokens or from 0 to
// kMaxDraftTokens.
absl::Status CheckDraftTokens(int draft_tokens);
// INVALID_ARGUMENT naming `draft_window` unless it is kAutoDraftWindow or at least 0.
absl::Status CheckDraftWindow(int draft_window);

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_ENGINE_OPTIONS_H_
