#ifndef TANDEM_CONSTRAINT_CONSTRAINT_COMPILER_H_
#define TANDEM_CONSTRAINT_CONSTRAINT_COMPILER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "tandem/output_constraint.h"
#include "tandem/token_constraint.h"
#include "tandem/tokenizer.h"
#include "tandem/types.h"

namespace tandem {

// Compiles constraints on two threads of its own, within limits, and keeps the latest. Thread-safe.
class ConstraintCompiler {
 public:
  struct Limits {
    size_t max_bytes = size_t{256} << 10;                 // of a constraint's text
    int max_depth = 128;                                  // of its brackets
    absl::Duration time = absl::Seconds(10);              // of a processor, to compile one
    int64_t max_grammar_bytes = int64_t{64} << 20;        // of what comes of it
    int64_t max_kept_bytes = int64_t{128} << 20;          // of grammars, beside those in use
    absl::Duration patience = absl::Seconds(20);          // of whoever waits for one
    int max_waiting = 4;                                  // constraints, once they wait for...
    absl::Duration short_wait = absl::Milliseconds(500);  // ...more than this
  };

  // `tokenizer` must outlive the compiler. `vocab_size` is the model's.
  ConstraintCompiler(const Tokenizer* tokenizer, int vocab_size, const Limits& limits);
  ~ConstraintCompiler();

  // Whose output ends in one of those of `end_tokens` that are special. Waits for as long as
  // `patience` says at most; what nobody waits for any more is not compiled further.
  //
  // UNIMPLEMENTED where there is no engine; INVALID_ARGUMENT naming the field `constraint` for what
  // cannot be compiled, or not within the limits; RESOURCE_EXHAUSTED for what might be at another
  // time. What is wrong by itself is kept like what is not, and anything else is tried again.
  absl::StatusOr<std::shared_ptr<const TokenConstraint>> Compile(
      const OutputConstraint& constraint, absl::Span<const TokenId> end_tokens);

  struct Load {
    int num_kept = 0;     // those that wait, and are being compiled, included
    int num_waiting = 0;  // for a thread
    int num_threads = 0;
  };
  Load load() const;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;  // with the threads
};

}  // namespace tandem

#endif  // TANDEM_CONSTRAINT_CONSTRAINT_COMPILER_H_
