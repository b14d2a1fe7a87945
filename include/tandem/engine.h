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
#include "tandem/draft_texts.h"
#include "tandem/drafter_kind.h"
#include "tandem/engine_load.h"
#include "tandem/engine_options.h"
#include "tandem/generation_id.h"
#include "tandem/model_info.h"
#include "tandem/request.h"
#include "tandem/round_stats.h"

namespace tandem {

class Tokenizer;

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

  // Adds texts from which the tenant's later rounds draft (docs/drafting/draft_texts.md), until
  // they are removed or the engine ends. Takes time: the texts are tokenised and sorted.
  // INVALID_ARGUMENT naming the field, and RESOURCE_EXHAUSTED beyond
  // EngineOptions::draft_text_bytes.
  virtual absl::StatusOr<DraftTextInfo> AddDraftText(const DraftTextInput& input);
  // The tenant's texts, oldest first.
  virtual std::vector<DraftTextInfo> DraftTexts(const std::string& cache_salt) const;
  // NOT_FOUND if the tenant has no texts with this id.
  virtual absl::Status RemoveDraftText(const std::string& id, const std::string& cache_salt);

  // OK, or DATA_LOSS that names the device and its error if the device is lost to this process, as
  // after an illegal access to its memory. Every generation then fails with it; only a new process
  // can use the device again.
  virtual absl::Status health() const { return absl::OkStatus(); }
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
