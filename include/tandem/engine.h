// The library's front door.
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

// What the engine runs, for reports.
struct ModelInfo {
  std::string path;
  std::string family;
  std::string dtype;
  int64_t parameters = 0;
  int64_t bytes_read_per_pass = 0;
  std::string kv_cache;  // what its cache holds: "f32", "bf16", "int8"
  int64_t kv_bytes_per_token = 0;
  int vocab_size = 0;
  int context_length = 0;
  int num_pages = 0;
  int page_size = 0;  // tokens
  int window = 0;     // of a draft: the last tokens that it reads of a long prompt; 0: all
  // Of a draft with other tokens than the target's: how many of the target's it can propose.
  std::optional<int> mapped_tokens{};
  // Of a draft: to what its matrices were quantised at load (EngineOptions::draft_quantize).
  std::string quantize = "none";
  // Of a draft: the tokens of its head. If they are learned, also the share of output tokens, of
  // those that it could propose with all of its head, that are among them.
  int head_tokens = 0;
  std::optional<double> head_coverage{};
};

// Pages of both models in EngineOptions::kv_store, since the engine was made.
struct StoreCounts {
  int64_t pages_written = 0;
  int64_t bytes_written = 0;
  int64_t pages_read = 0;
  int64_t bytes_read = 0;
  int64_t pages_hit = 0;      // of those read, put into a cache
  int64_t pages_evicted = 0;  // that made room for others
  int64_t pages_dropped = 0;  // not written: too many waited, or the store failed
  int64_t pages_damaged = 0;  // found other than they were written; each was computed again
};

// Batches of events that EngineOptions::kv_events has, since the engine was made.
struct KvEventCounts {
  int64_t batches_published = 0;  // with or without a subscriber
  int64_t batches_lost = 0;       // too many waited, or memory was short: their numbers are missing
};

// The engine between two rounds, for who watches it. Counts are of all time so far.
struct EngineLoad {
  int num_running = 0;  // generations that have their caches
  int num_waiting = 0;
  int target_pages_in_use = 0;  // by sequences; published pages that nobody uses are free
  int draft_pages_in_use = 0;
  RoundStats stats;  // of generations in progress, too
  int64_t prompt_tokens = 0;
  int64_t prefix_queries = 0;     // prompt tokens looked up in the target's prefix cache
  int64_t prefix_hits = 0;        // of those, found
  int64_t draft_prefix_hits = 0;  // tokens found in the draft's, in its own
  int64_t preemptions = 0;
  StoreCounts store{};
  TransferCounts transfer{};
  KvEventCounts kv_events{};
  int64_t draft_memory_bytes = 0;  // taken to remember texts, of all tenants
  int draft_memory_tenants = 0;    // whose texts are remembered, or were to be
};

using GenerationId = int64_t;

// Generates text with a target model, sped up by a drafter. The output is distributed as the
// target's alone; with a seed or at temperature 0 it is the target's alone, token for token.
//
// Thread-safe. Rounds run on one thread of the engine's own, callbacks on others
// (EngineOptions::callback_thread). Nothing is thrown: what a library throws in here is an error of
// the call or the generation that it concerns, INTERNAL for want of memory. Nothing is printed: the
// log goes to the spdlog logger that is registered as "tandem", and nowhere without one.
//
// An engine belongs to the process that made it. In a forked child, which has none of its threads,
// Submit, Wait, Generate and CheckIntegrity return FAILED_PRECONDITION, Cancel does nothing, stats
// and load are zero, and the destructor frees nothing. The child may make an engine of its own.
class Engine {
 public:
  // NOT_FOUND, INVALID_ARGUMENT or RESOURCE_EXHAUSTED naming the file and field.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const EngineOptions& options);
  // Cancels what runs, waits for its callbacks, and until those who wait in Wait or CheckIntegrity
  // have their answers. No other call may begin meanwhile, but from callbacks: they are refused as
  // CANCELLED. Must not run in a callback.
  virtual ~Engine() = default;

  // Called with what rounds have committed, piece after piece; return false to stop: then the
  // completion ends with this piece. An exception from it fails the generation as INTERNAL.
  using OnPiece = absl::AnyInvocable<bool(const Piece&)>;
  // Called once, when the generation has ended and after its last piece. May submit the next.
  using OnDone = absl::AnyInvocable<void(absl::StatusOr<Completion>)>;

  // Queues a generation. INVALID_ARGUMENT naming the field if the request is impossible,
  // RESOURCE_EXHAUSTED if EngineOptions::max_generations are with the engine. Without `on_done`
  // every generation must be waited for; with it none may be.
  virtual absl::StatusOr<GenerationId> Submit(Request request, OnPiece on_piece,
                                              OnDone on_done) = 0;
  absl::StatusOr<GenerationId> Submit(Request request, OnPiece on_piece = nullptr) {
    return Submit(std::move(request), std::move(on_piece), nullptr);
  }
  // Blocks until the generation ends and its last piece was handed over; its errors are returned
  // here. DEADLINE_EXCEEDED if `timeout` passes before: it goes on, and may be waited for again; a
  // timeout of zero asks whether it has ended. NOT_FOUND for an id that is unknown, was waited for,
  // or is being waited for.
  virtual absl::StatusOr<Completion> Wait(GenerationId id, absl::Duration timeout) = 0;
  absl::StatusOr<Completion> Wait(GenerationId id) { return Wait(id, absl::InfiniteDuration()); }
  // Ends a generation at its next round, as kCancelled. Unknown ids are ignored.
  virtual void Cancel(GenerationId id) = 0;
  // Submit and Wait.
  absl::StatusOr<Completion> Generate(Request request, OnPiece on_piece = nullptr);

  // Counts every page of both caches, between two rounds: INTERNAL, naming the page, unless each is
  // free or held exactly as often as is known.
  virtual absl::Status CheckIntegrity() = 0;

  virtual RoundStats stats() const = 0;  // of all generations that have ended
  virtual EngineLoad load() const = 0;
  virtual const Tokenizer& tokenizer() const = 0;
  virtual ModelInfo target_info() const = 0;
  virtual std::optional<ModelInfo> draft_info() const = 0;
  virtual DrafterKind drafter() const = 0;  // of requests that name none; never kAuto
  // That requests may name, but for kNone, which all may.
  virtual std::vector<DrafterKind> drafters() const;
  virtual std::string device_description() const = 0;
};

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_ENGINE_H_
