// Creates engines from options, and implements the parts of Engine that only call others.
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/guard.h"
#include "base/status_macros.h"
#include "engine/engine_parts.h"
#include "engine/judged_engine.h"
#include "engine/learned_speculation.h"
#include "tandem/engine.h"
#include "tandem/model_places.h"

namespace tandem {
namespace {

// Binds an engine to the process that created it. A forked process has the engine's memory without
// its threads, so it must not wait for them or take a lock that one of them held at the fork.
// There, calls are refused as Engine describes, and the destructor does not touch the engine's
// memory.
class ProcessBoundEngine final : public Engine {
 public:
  explicit ProcessBoundEngine(std::unique_ptr<Engine> engine) : engine_(std::move(engine)) {}
  ~ProcessBoundEngine() override {
    if (!CheckProcess().ok()) (void)engine_.release();  // it would join missing threads
  }

  using Engine::Submit;
  absl::StatusOr<GenerationId> Submit(Request request, OnPiece on_piece, OnDone on_done) override {
    RETURN_IF_ERROR(CheckProcess());
    return engine_->Submit(std::move(request), std::move(on_piece), std::move(on_done));
  }
  using Engine::Wait;
  absl::StatusOr<Completion> Wait(GenerationId id, absl::Duration timeout) override {
    RETURN_IF_ERROR(CheckProcess());
    return engine_->Wait(id, timeout);
  }
  void Cancel(GenerationId id) override {
    if (CheckProcess().ok()) engine_->Cancel(id);
  }
  void AwaitPackedWeights() override {
    if (CheckProcess().ok()) engine_->AwaitPackedWeights();
  }
  absl::Status CheckIntegrity() override {
    RETURN_IF_ERROR(CheckProcess());
    return engine_->CheckIntegrity();
  }
  absl::Status health() const override {
    RETURN_IF_ERROR(CheckProcess());
    return engine_->health();
  }
  RoundStats stats() const override {
    return CheckProcess().ok() ? engine_->stats() : RoundStats();
  }
  EngineLoad load() const override { return CheckProcess().ok() ? engine_->load() : EngineLoad(); }

  // Constant data needs neither a thread nor a lock.
  const Tokenizer& tokenizer() const override { return engine_->tokenizer(); }
  ModelInfo target_info() const override { return engine_->target_info(); }
  std::optional<ModelInfo> draft_info() const override { return engine_->draft_info(); }
  DrafterKind drafter() const override { return engine_->drafter(); }
  std::vector<DrafterKind> drafters() const override { return engine_->drafters(); }
  std::string device_description() const override { return engine_->device_description(); }

 private:
  absl::Status CheckProcess() const {
    const pid_t here = getpid();
    if (here == process_) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat("engine: was created in process ", process_, "; process ", here,
                     " is a fork without its threads; create the engine after the fork"));
  }

  std::unique_ptr<Engine> engine_;
  const pid_t process_ = getpid();
};

// Like Runtime::Load. `store`: replaces the store of the options, unless it is null.
absl::StatusOr<EngineParts> LoadParts(const EngineOptions& options, bool keeps_speculation,
                                      std::shared_ptr<PageStore> store) {
  EngineParts parts;
  parts.options = options;
  RETURN_IF_ERROR(ResolveModels(&parts.options));
  // Bind the endpoint before reading models, which takes long: it may be in use.
  std::unique_ptr<KvEventPublisher> publisher;
  if (!parts.options.kv_events.empty()) {
    RETURN_IF_ERROR(parts.options.Validate());
    ASSIGN_OR_RETURN(publisher,
                     StartKvEventPublisher({.endpoint = parts.options.kv_events,
                                            .replay_endpoint = parts.options.kv_events_replay,
                                            .topic = parts.options.kv_events_topic}));
  }
  ASSIGN_OR_RETURN(Runtime runtime, Runtime::Load(parts.options));
  parts.runtime = std::make_unique<Runtime>(std::move(runtime));
  if (publisher != nullptr) {
    parts.events =
        std::make_unique<CacheEvents>(parts.runtime->target_cache.get(), std::move(publisher));
  }
  if (keeps_speculation) {
    parts.learned_file = LearnedSpeculationFile(parts.options, parts.runtime->drafter_kind,
                                                parts.runtime->backend->description());
  }
  ASSIGN_OR_RETURN(parts.store,
                   PromptStore::Open(std::move(store), parts.options, parts.runtime.get()));
  return parts;
}

absl::StatusOr<std::unique_ptr<Engine>> NewEngine(const EngineOptions& options, JudgeFunction judge,
                                                  bool keeps_speculation,
                                                  std::shared_ptr<PageStore> store = nullptr) {
  std::unique_ptr<Engine> engine;
  RETURN_IF_ERROR(Guarded("loading", [&]() -> absl::Status {
    ASSIGN_OR_RETURN(EngineParts parts, LoadParts(options, keeps_speculation, std::move(store)));
    engine = std::make_unique<ProcessBoundEngine>(StartEngine(std::move(parts), std::move(judge)));
    return absl::OkStatus();
  }));
  return engine;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(const EngineOptions& options) {
  return NewEngine(options, Judge, /*keeps_speculation=*/true);
}

absl::StatusOr<std::unique_ptr<Engine>> CreateEngineWithJudge(const EngineOptions& options,
                                                              JudgeFunction judge) {
  return NewEngine(options, std::move(judge), /*keeps_speculation=*/false);
}

absl::StatusOr<std::unique_ptr<Engine>> CreateEngineWithStore(const EngineOptions& options,
                                                              std::shared_ptr<PageStore> store) {
  return NewEngine(options, Judge, /*keeps_speculation=*/false, std::move(store));
}

std::vector<DrafterKind> Engine::drafters() const {
  const DrafterKind own = drafter();
  return own == DrafterKind::kNone ? std::vector<DrafterKind>() : std::vector{own};
}

absl::StatusOr<Completion> Engine::Generate(Request request, OnPiece on_piece) {
  ASSIGN_OR_RETURN(const GenerationId id, Submit(std::move(request), std::move(on_piece)));
  return Wait(id);
}

}  // namespace tandem
