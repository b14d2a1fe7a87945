#include "text/end_tokens.h"

#include <string_view>

#include "model/checkpoint/end_names.h"

namespace tandem {

std::vector<TokenId> EndTokensOf(const ModelConfig& config, const Tokenizer& tokenizer) {
  std::vector<TokenId> ends = config.eos_token_ids;
  if (config.has_ends_by_name) return ends;
  AddEndsByName([&](std::string_view name) { return tokenizer.IdOf(name); },
                [](const FillEnd&) { return false; }, &ends);
  return ends;
}

}  // namespace tandem
