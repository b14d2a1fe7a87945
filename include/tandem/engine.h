// The entry point of the library.
//
//   #include <tandem/engine.h>
//
//   absl::StatusOr<std::unique_ptr<tandem::Engine>> engine = tandem::Engine::Create(
//       {.target = "models/storyteller-7m", .draft = "models/storyteller-1m"});
//   if (!engine.ok()) return Fail(engine.status());
//   absl::StatusOr<tandem::Completion> story =
//       (*engine)->Generate({.prompt = "Once upon a time", .max_tokens = 64});
//   if (story.ok()) std::cout << story->text << "\n";
#ifndef TANDEM_INCLUDE_TANDEM_ENGINE_H_
#define TANDEM_INCLUDE_TANDEM_ENGINE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tandem/completion.h"
#include "tandem/drafter_kind.h"
#include "tandem/engine_options.h"
#include "tandem/kv_transfer.h"
#include "tandem/request.h"
#include "tandem/round_stats.h"

namespace tandem {

class Tokenizer;

// A model that the engine runs, for reports.
struct ModelInfo {
  std::string path;
  std::string family;
  std::string dtype;
  int64_t parameters = 0;
  int64_t bytes_read_per_pass = 0;
  std::string kv_cache;  // type of its cache: "f32", "bf16", "int8"
  int64_t kv_bytes_per_token = 0;
  int vocab_size = 0;
  int context_length = 0;
  int num_pages = 0;
  int page_size = 0;  // tokens
  int window = 0;     // of a draft: how many of the last tokens of a long prompt it reads; 0: all
  // Only for a draft whose vocabulary differs from the target's: how many of the target's tokens it
  // can propose.
  std::optional<int> mapped_tokens{};
  // Only for a draft: the format to which its matrices were quantised at load
  // (EngineOptions::draft_quantize).
  std::string quantize = "none";
  // Only for a draft: the number of tokens in its head. If the head is learned, also its coverage:
  // the share of output tokens in the head, among those that a complete head could propose.
  int head_tokens = 0;
  std::optional<double> head_coverage{};
  // In words, how the weights differ from the files': "quantized not, tied head".
  std::string weights_form{};
};

// Pages of both models in EngineOptions::kv_store, since the engine was created.
struct StoreCounts {
  int64_t pages_written = 0;
  int64_t bytes_written = 0;
  int64_t pages_read = 0;
  int64_t bytes_read = 0;
  int64_t pages_hit = 0;      // read and put into a cache
  int64_t pages_evicted = 0;  // removed to make room for others
  int64_t pages_dropped = 0;  // not written: the queue was full, or the store failed
  int64_t pages_damaged = 0;  // read back corrupted; each was recomputed
};

// Batches of events published at EngineOptions::kv_events, since the engine was created.
struct KvEventCounts {
  int64_t batches_published = 0;  // with or without a subscriber
  // Not published, because the queue was full or memory was short. Their numbers are skipped.
  int64_t batches_lost = 0;
};

// A snapshot of the engine between two rounds, for monitoring. Counts start when the engine is
// created.
struct EngineLoad {
  int num_running = 0;  // generations that hold cache pages
  int num_waiting = 0;
  int target_pages_in_use = 0;  // by sequences; published pages without a user count as free
  int draft_pages_in_use = 0;
  RoundStats stats;  // including generations in progress
  int64_t prompt_tokens = 0;
  int64_t prefix_queries = 0;     // prompt tokens looked up in the target's prefix cache
  int64_t prefix_hits = 0;        // prompt tokens found there
  int64_t draft_prefix_hits = 0;  // found in the draft's prefix cache, in draft tokens
  int64_t preemptions = 0;
  StoreCounts store{};
  TransferCounts transfer{};
  KvEventCounts kv_events{};
  int64_t draft_memory_bytes = 0;  // used to remember texts, for all tenants
  int draft_memory_tenants = 0;    // tenants whose texts are remembered, or should be
};

using GenerationId = int64_t;

// Generates text with a target model, sped up by a drafter. The output has the same distribution as
// the target's alone; with a seed or at temperature 0 it is the same, token for token.
//
// Thread-safe. Rounds run on the engine's own thread, callbacks on other threads
// (EngineOptions::callback_thread). Nothing is thrown: an exception from a library becomes an error
// of the call or generation that it affects; running out of memory is INTERNAL. Nothing is printed:
// log lines go to the spdlog logger registered as "tandem", and are dropped if there is none.
//
// An engine belongs to the process that created it. In a forked child, which lacks its threads,
// Submit, Wait, Generate and CheckIntegrity return FAILED_PRECONDITION, Cancel does nothing, stats
// and load are zero, and the destructor frees nothing. The child may create its own engine.
class Engine {
 public:
  // Loads the models and starts the engine. Errors are NOT_FOUND, INVALID_ARGUMENT or
  // RESOURCE_EXHAUSTED; they name the file and field.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const EngineOptions& options);
  // Cancels running generations, then waits for their callbacks and for pending calls of Wait and
  // CheckIntegrity to return. Meanwhile only callbacks may make further calls, which return
  // CANCELLED. Must not run in a callback.
  virtual ~Engine() = default;

  // Called with the output that rounds have committed, piece by piece. Return false to stop: the
  // completion then ends with this piece. An exception from it fails the generation as INTERNAL.
  using OnPiece = absl::AnyInvocable<bool(const Piece&)>;
  // Called once, after the generation's last piece. May submit the next generation.
  using OnDone = absl::AnyInvocable<void(absl::StatusOr<Completion>)>;

  // Queues a generation. Returns INVALID_ARGUMENT naming the field if the request is impossible,
  // and RESOURCE_EXHAUSTED if EngineOptions::max_generations are queued, running or not yet waited
  // for. A generation without `on_done` must be waited for; one with `on_done` must not be.
  virtual absl::StatusOr<GenerationId> Submit(Request request, OnPiece on_piece,
                                              OnDone on_done) = 0;
  absl::StatusOr<GenerationId> Submit(Request request, OnPiece on_piece = nullptr) {
    return Submit(std::move(request), std::move(on_piece), nullptr);
  }
  // Blocks until the generation has ended and its last piece was delivered. Returns its completion
  // or error. Returns DEADLINE_EXCEEDED if `timeout` passes first; the generation then continues
  // and can be waited for again. A timeout of zero polls. Returns NOT_FOUND for an id that is
  // unknown, already waited for, or being waited for.
  virtual absl::StatusOr<Completion> Wait(GenerationId id, absl::Duration timeout) = 0;
  absl::StatusOr<Completion> Wait(GenerationId id) { return Wait(id, absl::InfiniteDuration()); }
  // Ends a generation before its next round, as kCancelled. Ignores unknown ids.
  virtual void Cancel(GenerationId id) = 0;
  // Calls Submit, then Wait.
  absl::StatusOr<Completion> Generate(Request request, OnPiece on_piece = nullptr);

  // Waits until the files of EngineOptions::packed_weights that Create began to write are complete.
  // Without this call the engine's end discards what is not complete, and the next start packs the
  // weights again. Failures were logged.
  virtual void AwaitPackedWeights() {}

  // Checks the reference count of every page of both caches, between two rounds. Returns INTERNAL,
  // naming the page, if a count is wrong.
  virtual absl::Status CheckIntegrity() = 0;

  virtual RoundStats stats() const = 0;  // of all generations that have ended
  virtual EngineLoad load() const = 0;
  virtual const Tokenizer& tokenizer() const = 0;
  virtual ModelInfo target_info() const = 0;
  virtual std::optional<ModelInfo> draft_info() const = 0;
  virtual DrafterKind drafter() const = 0;  // for requests without one; never kAuto
  // The drafters that requests may name. kNone is always allowed and not listed.
  virtual std::vector<DrafterKind> drafters() const;
  virtual std::string device_description() const = 0;
};

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_ENGINE_H_
