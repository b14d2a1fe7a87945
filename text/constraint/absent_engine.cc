// The grammar engine of builds without XGrammar.
#include "absl/status/status.h"
#include "text/constraint/grammar_engine.h"

namespace tandem {

bool HasGrammarEngine() { return false; }

absl::StatusOr<std::unique_ptr<GrammarEngine>> GrammarEngine::Make(const Tokenizer& /*tokenizer*/,
                                                                   int /*vocab_size*/) {
  return absl::UnimplementedError("this build has no grammar engine (docs/constraints.md)");
}

}  // namespace tandem
