// Creates engines from options, and implements the parts of Engine that only call others.
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
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
  ProcessBoundEngine(std::unique_ptr<Engine> engine, std::shared_ptr<DraftTextStore> texts)
      : engine_(std::move(engine)), texts_(std::move(texts)) {}
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

  absl::StatusOr<DraftTextInfo> AddDraftText(const DraftTextInput& input) override {
    RETURN_IF_ERROR(CheckProcess());
    absl::StatusOr<DraftTextInfo> info;
    RETURN_IF_ERROR(Guarded("draft text", [&] {
      info = texts_->Add(input, engine_->tokenizer());
      return info.status();
    }));
    return info;
  }
  std::vector<DraftTextInfo> DraftTexts(const std::string& cache_salt) const override {
    return CheckProcess().ok() ? texts_->List(cache_salt) : std::vector<DraftTextInfo>();
  }
  absl::Status RemoveDraftText(const std::string& id, const std::string& cache_salt) override {
    RETURN_IF_ERROR(CheckProcess());
    return texts_->Remove(id, cache_salt);
  }

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
  const std::shared_ptr<DraftTextStore> texts_;
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
  parts.texts = std::make_shared<DraftTextStore>(options.draft_text_bytes);
  ASSIGN_OR_RETURN(parts.store,
                   PromptStore::Open(std::move(store), parts.options, parts.runtime.get()));
  return parts;
}

// Returns `status`, an error of the file at `path`, as one of the option draft_texts.
absl::Status OfDraftTexts(const absl::Status& status, const std::string& path) {
  if (status.ok()) return status;
  const absl::string_view what = status.message();
  const bool is_named = absl::StartsWith(what, path);
  return {status.code(), absl::StrCat("draft_texts: ", is_named ? "" : path + ": ", what)};
}

absl::StatusOr<std::unique_ptr<Engine>> NewEngine(const EngineOptions& options, JudgeFunction judge,
                                                  bool keeps_speculation,
                                                  std::shared_ptr<PageStore> store = nullptr) {
  std::vector<DraftTextInput> draft_texts;  // read before the models, which takes long
  for (const std::string& path : options.draft_texts) {
    absl::StatusOr<DraftTextInput> input = ReadDraftTextFile(path);
    RETURN_IF_ERROR(OfDraftTexts(input.status(), path));
    draft_texts.push_back(*std::move(input));
  }
  std::unique_ptr<Engine> engine;
  RETURN_IF_ERROR(Guarded("loading", [&]() -> absl::Status {
    ASSIGN_OR_RETURN(EngineParts parts, LoadParts(options, keeps_speculation, std::move(store)));
    auto texts = parts.texts;
    engine = std::make_unique<ProcessBoundEngine>(StartEngine(std::move(parts), std::move(judge)),
                                                  std::move(texts));
    for (const DraftTextInput& input : draft_texts) {
      RETURN_IF_ERROR(OfDraftTexts(engine->AddDraftText(input).status(), input.name));
    }
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

absl::StatusOr<DraftTextInfo> Engine::AddDraftText(const DraftTextInput& /*input*/) {
  return absl::UnimplementedError("this engine has no texts to draft from");
}
std::vector<DraftTextInfo> Engine::DraftTexts(const std::string& /*cache_salt*/) const {
  return {};
}
absl::Status Engine::RemoveDraftText(const std::string& /*id*/, const std::string& /*cache_salt*/) {
  return absl::NotFoundError("this engine has no texts to draft from");
}

absl::StatusOr<Completion> Engine::Generate(Request request, OnPiece on_piece) {
  ASSIGN_OR_RETURN(const GenerationId id, Submit(std::move(request), std::move(on_piece)));
  return Wait(id);
}

}  // namespace tandem
