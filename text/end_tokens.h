// The tokens that end a generation: those that the model states, and those that its vocabulary has
// under certain names (model/checkpoint/end_names.h).
#ifndef TANDEM_TEXT_END_TOKENS_H_
#define TANDEM_TEXT_END_TOKENS_H_

#include <vector>

#include "model/checkpoint/model_config.h"
#include "tandem/tokenizer.h"
#include "tandem/types.h"

namespace tandem {

// Returns all end tokens of a model, those of its configuration first.
std::vector<TokenId> EndTokensOf(const ModelConfig& config, const Tokenizer& tokenizer);

}  // namespace tandem

#endif  // TANDEM_TEXT_END_TOKENS_H_
