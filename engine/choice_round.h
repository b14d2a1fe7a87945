#ifndef TANDEM_ENGINE_CHOICE_ROUND_H_
#define TANDEM_ENGINE_CHOICE_ROUND_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/runtime.h"
#include "engine/scheduler.h"
#include "engine/session.h"
#include "model/language_model.h"
#include "tandem/request.h"

namespace tandem {

// Prepares `session`, whose other fields are set, for the choice that `request` asks for with
// ChoiceLaw::kConditional. Every error names the field.
absl::Status SetChoices(const Request& request, const Runtime& runtime, Session* session);

// Scores the choices of all steps together, in passes of at most `max_rows` rows. A session whose
// choices are then all scored gains the tokens of the one that it draws, and ends. An error of a
// row fails its session. On error every session is unchanged.
absl::Status RunChoiceRound(LanguageModel* target, absl::Span<const ChoiceStep> steps,
                            int max_rows);

}  // namespace tandem

#endif  // TANDEM_ENGINE_CHOICE_ROUND_H_
