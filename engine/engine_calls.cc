// What Engine offers in terms of the rest of it.
#include <utility>

#include "base/status_macros.h"
#include "tandem/engine.h"

namespace tandem {

std::vector<DrafterKind> Engine::drafters() const {
  const DrafterKind own = drafter();
  return own == DrafterKind::kNone ? std::vector<DrafterKind>() : std::vector{own};
}

absl::StatusOr<Completion> Engine::Generate(Request request, OnPiece on_piece) {
  ASSIGN_OR_RETURN(const GenerationId id, Submit(std::move(request), std::move(on_piece)));
  return Wait(id);
}

}  // namespace tandem
