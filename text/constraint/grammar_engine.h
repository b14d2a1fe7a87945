#ifndef TANDEM_TEXT_CONSTRAINT_GRAMMAR_ENGINE_H_
#define TANDEM_TEXT_CONSTRAINT_GRAMMAR_ENGINE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tandem/output_constraint.h"
#include "tandem/token_constraint.h"
#include "tandem/tokenizer.h"
#include "tandem/types.h"
#include "text/constraint/work_budget.h"

namespace tandem {

// Whether this build has XGrammar and can compile constraints (docs/constraints.md).
bool HasGrammarEngine();

// A grammar over the tokens of one vocabulary. Immutable.
class CompiledGrammar {
 public:
  virtual ~CompiledGrammar() = default;
  // Returns the constraint in which `end_tokens` are allowed where the text is complete, and
  // nowhere else.
  virtual std::shared_ptr<const TokenConstraint> EndingIn(
      absl::Span<const TokenId> end_tokens) const = 0;
  virtual int64_t bytes() const = 0;  // approximate memory
};

// Compiles constraints for one vocabulary. Thread-safe.
class GrammarEngine {
 public:
  virtual ~GrammarEngine() = default;
  // `vocab_size` is the model's, which may be larger than the tokenizer's. UNIMPLEMENTED in a build
  // without XGrammar, and for tokenizers that put a separator between tokens.
  static absl::StatusOr<std::unique_ptr<GrammarEngine>> Make(const Tokenizer& tokenizer,
                                                             int vocab_size);

  // INVALID_ARGUMENT with the library's message if the constraint is malformed, cannot be
  // satisfied, or has parts that would be ignored. Errors of WorkBudget if it exceeds `limits`.
  virtual absl::StatusOr<std::shared_ptr<const CompiledGrammar>> Compile(
      const OutputConstraint& constraint, const WorkBudget::Limits& limits) const = 0;
  absl::StatusOr<std::shared_ptr<const CompiledGrammar>> Compile(
      const OutputConstraint& constraint) const {
    return Compile(constraint, WorkBudget::Limits());
  }
};

}  // namespace tandem

#endif  // TANDEM_TEXT_CONSTRAINT_GRAMMAR_ENGINE_H_
