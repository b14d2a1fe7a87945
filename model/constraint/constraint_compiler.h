#ifndef TANDEM_MODEL_CONSTRAINT_CONSTRAINT_COMPILER_H_
#define TANDEM_MODEL_CONSTRAINT_CONSTRAINT_COMPILER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/types.h"
#include "model/constraint/output_constraint.h"
#include "model/constraint/token_constraint.h"
#include "model/tokenizer/tokenizer.h"

namespace tandem {

// Compiles constraints on threads of its own, within limits, and keeps the latest. Thread-safe.
class ConstraintCompiler {
 public:
  struct Limits {
    size_t most_bytes = size_t{256} << 10;  // of a constraint's text
    int most_depth = 128;                   // of its brackets
    absl::Duration time = absl::Seconds(10);
    int64_t most_kept_bytes = int64_t{128} << 20;  // of grammars, beside those in use
  };

  // `tokenizer` must outlive the compiler. `vocab_size` is the model's.
  ConstraintCompiler(const Tokenizer* tokenizer, int vocab_size, const Limits& limits);
  ~ConstraintCompiler();

  // Whose output ends in one of those of `end_tokens` that are special. Waits for as long as the
  // limit says at most. UNIMPLEMENTED where there is no engine; INVALID_ARGUMENT naming the field
  // `constraint` for what cannot be compiled, or not within the limits.
  absl::StatusOr<std::shared_ptr<const TokenConstraint>> Compile(
      const OutputConstraint& constraint, absl::Span<const TokenId> end_tokens);

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;  // with threads that are still compiling what nobody waits for
};

}  // namespace tandem

#endif  // TANDEM_MODEL_CONSTRAINT_CONSTRAINT_COMPILER_H_
