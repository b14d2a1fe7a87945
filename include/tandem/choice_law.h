#ifndef TANDEM_INCLUDE_TANDEM_CHOICE_LAW_H_
#define TANDEM_INCLUDE_TANDEM_CHOICE_LAW_H_

#include <string_view>

#include "absl/status/statusor.h"

namespace tandem {

// The law by which one of several texts is chosen (docs/choices.md).
enum class ChoiceLaw {
  // Token by token, each from the model's distribution restricted to the tokens that may come next.
  kMasked,
  // As a whole, from the probabilities that the model gives to the texts.
  kConditional,
};

// The greatest number of texts that kConditional scores.
inline constexpr int kMaxScoredChoices = 256;

// "masked", "conditional".
std::string_view NameOf(ChoiceLaw law);
// INVALID_ARGUMENT naming the field `choice_law` for other names.
absl::StatusOr<ChoiceLaw> ParseChoiceLaw(std::string_view name);

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_CHOICE_LAW_H_
