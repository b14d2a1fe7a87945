#ifndef TANDEM_TEXT_CONSTRAINT_CONSTRAINT_COMPILER_H_
#define TANDEM_TEXT_CONSTRAINT_CONSTRAINT_COMPILER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "tandem/output_constraint.h"
#include "tandem/token_constraint.h"
#include "tandem/tokenizer.h"
#include "tandem/types.h"

namespace tandem {

// Compiles constraints within limits, on up to two threads of its own, and keeps the most recently
// used grammars. Thread-safe.
class ConstraintCompiler {
 public:
  struct Limits {
    size_t max_bytes = size_t{256} << 10;           // of a constraint's text
    int max_depth = 128;                            // of its nested brackets
    absl::Duration time = absl::Seconds(10);        // processor time to compile one
    int64_t max_work_bytes = int64_t{256} << 20;    // memory while one is compiled
    int64_t max_grammar_bytes = int64_t{64} << 20;  // of one compiled grammar
    int64_t max_kept_bytes = int64_t{128} << 20;    // of all kept grammars
    absl::Duration patience = absl::Seconds(20);    // how long a caller waits for a grammar
    // A new constraint is rejected if this many wait, and the first for longer than `short_wait`.
    int max_waiting = 4;
    absl::Duration short_wait = absl::Milliseconds(500);
  };

  // `tokenizer` must outlive the compiler. `vocab_size` is the model's.
  ConstraintCompiler(const Tokenizer* tokenizer, int vocab_size, const Limits& limits);
  ~ConstraintCompiler();

  // Returns the compiled constraint. Outputs end with one of the special tokens in `end_tokens`.
  // Grammars are kept per `salt`, so that no tenant learns from the time what another has compiled.
  // Waits for at most `patience`; compiling stops once all its callers have stopped waiting.
  //
  // UNIMPLEMENTED in a build without a grammar engine. INVALID_ARGUMENT names the field
  // `constraint` if it cannot be compiled within the limits. RESOURCE_EXHAUSTED if compiling may
  // succeed later. Errors of the constraint itself are kept like grammars; after other errors it is
  // compiled again.
  absl::StatusOr<std::shared_ptr<const TokenConstraint>> Compile(
      const OutputConstraint& constraint, absl::Span<const TokenId> end_tokens,
      absl::string_view salt = "");

  struct Load {
    int num_kept = 0;     // including those that wait or are being compiled
    int num_waiting = 0;  // those that wait for a thread
    int num_threads = 0;
  };
  Load load() const;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;  // shared with the threads
};

}  // namespace tandem

#endif  // TANDEM_TEXT_CONSTRAINT_CONSTRAINT_COMPILER_H_
