#ifndef TANDEM_ENGINE_STUB_ENGINE_TESTING_H_
#define TANDEM_ENGINE_STUB_ENGINE_TESTING_H_

#include <cstdlib>
#include <optional>
#include <string>

#include "tandem/engine.h"

namespace tandem {

// An engine without models. A test overrides the functions that it needs. Submit, Wait and
// tokenizer abort unless they are overridden.
class StubEngine : public Engine {
 public:
  using Engine::Submit;
  using Engine::Wait;
  absl::StatusOr<GenerationId> Submit(Request, OnPiece, OnDone) override { std::abort(); }
  absl::StatusOr<Completion> Wait(GenerationId, absl::Duration) override { std::abort(); }
  void Cancel(GenerationId) override {}
  absl::Status CheckIntegrity() override { return absl::OkStatus(); }
  RoundStats stats() const override { return {}; }
  EngineLoad load() const override { return {}; }
  const Tokenizer& tokenizer() const override { std::abort(); }
  ModelInfo target_info() const override { return {}; }
  std::optional<ModelInfo> draft_info() const override { return std::nullopt; }
  DrafterKind drafter() const override { return DrafterKind::kModel; }
  std::string device_description() const override { return "stub"; }
};

}  // namespace tandem

#endif  // TANDEM_ENGINE_STUB_ENGINE_TESTING_H_
