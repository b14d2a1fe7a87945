#include "engine/process_bound_engine.h"

#include <unistd.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace tandem {
namespace {

class ProcessBoundEngine final : public Engine {
 public:
  explicit ProcessBoundEngine(std::unique_ptr<Engine> engine) : engine_(std::move(engine)) {}
  ~ProcessBoundEngine() override {
    if (!CheckProcess().ok()) (void)engine_.release();  // it would join threads that are absent
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
  absl::Status CheckIntegrity() override {
    RETURN_IF_ERROR(CheckProcess());
    return engine_->CheckIntegrity();
  }
  RoundStats stats() const override {
    return CheckProcess().ok() ? engine_->stats() : RoundStats();
  }
  EngineLoad load() const override { return CheckProcess().ok() ? engine_->load() : EngineLoad(); }

  // What never changes needs no thread and no lock.
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
        absl::StrCat("engine: was made in process ", process_, ", and process ", here,
                     " is a fork without its threads; make an engine after the fork"));
  }

  std::unique_ptr<Engine> engine_;
  const pid_t process_ = getpid();
};

}  // namespace

std::unique_ptr<Engine> BoundToThisProcess(std::unique_ptr<Engine> engine) {
  return std::make_unique<ProcessBoundEngine>(std::move(engine));
}

}  // namespace tandem
