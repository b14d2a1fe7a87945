#ifndef TANDEM_ENGINE_DRAFT_MASK_H_
#define TANDEM_ENGINE_DRAFT_MASK_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/runtime.h"
#include "model/checkpoint/model_config.h"
#include "tandem/drafter_kind.h"
#include "tandem/engine_options.h"
#include "tandem/types.h"

namespace tandem {

// Whether a draft model with this configuration proposes several tokens in one pass, unless
// ChooseMaskToken refuses its mask.
bool DraftsInOnePass(const EngineOptions& options, const ModelConfig& draft);

// INVALID_ARGUMENT naming `draft_mask_token` if the option names an id, but the draft that is used
// is not a model with files of its own.
absl::Status CheckMaskOption(const EngineOptions& options, DraftForm form);

// Returns the mask with which the loaded draft model drafts in one pass, or kNoMaskToken. An id of
// the option is tried: the draft writes a text, and in each pass one mask predicts the token after
// the next. INVALID_ARGUMENT naming `draft_mask_token` if the draft seems not to have been trained
// for it. Warns of a draft that seems to have lost its mask.
// REQUIRES: the models and caches of `runtime` were made.
absl::StatusOr<TokenId> ChooseMaskToken(const EngineOptions& options, const Runtime& runtime);

}  // namespace tandem

#endif  // TANDEM_ENGINE_DRAFT_MASK_H_
