#ifndef TANDEM_TEXT_CONSTRAINT_CHOICE_TEXTS_H_
#define TANDEM_TEXT_CONSTRAINT_CHOICE_TEXTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tandem/choice_law.h"
#include "tandem/output_constraint.h"
#include "tandem/tokenizer.h"
#include "tandem/types.h"

namespace tandem {

// A text that an output may be, and its canonical tokens: those into which the tokenizer splits it
// where it follows other tokens.
struct ChoiceText {
  std::string text;
  std::vector<TokenId> tokens;
};

// Returns the texts among which ChoiceLaw::kConditional chooses: those of a choice, or the JSON of
// the strings in the `enum` of a schema that has no other restriction.
// INVALID_ARGUMENT naming the field `choice_law` for other constraints. It names the field
// `constraint` if there are no texts or more than kMaxScoredChoices, if two have the same tokens,
// or if the tokens of one spell another text.
absl::StatusOr<std::vector<ChoiceText>> ChoiceTextsOf(const OutputConstraint& constraint,
                                                      const Tokenizer& tokenizer);

}  // namespace tandem

#endif  // TANDEM_TEXT_CONSTRAINT_CHOICE_TEXTS_H_
