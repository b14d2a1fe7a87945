// Constraints on the tokens of an output, whatever their source.
#ifndef TANDEM_INCLUDE_TANDEM_TOKEN_CONSTRAINT_H_
#define TANDEM_INCLUDE_TANDEM_TOKEN_CONSTRAINT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "tandem/types.h"

namespace tandem {

// Maximum bytes that ConstraintState::Forced returns: more than drafts can use. It bounds the work
// on long literals.
inline constexpr size_t kMaxForcedBytes = 512;

// The state of the constraint on one output. Thread-compatible.
class ConstraintState {
 public:
  virtual ~ConstraintState() = default;
  virtual std::unique_ptr<ConstraintState> Clone() const = 0;

  // Adds the next token. Returns false and changes nothing if it is not allowed next. A token that
  // exceeds the work limit is accepted, and status() then reports the error.
  virtual bool Accept(TokenId token) = 0;
  // Removes the last accepted token. REQUIRES: there is one, and it is not committed.
  virtual void Undo() = 0;
  // Makes all accepted tokens final. Only the time spent on committed tokens counts against the
  // output's limit: work on tokens that are undone never ends an output.
  virtual void Commit() {}
  // Returns a bit mask: bit v % 32 of word v / 32 says whether token v is allowed next. Valid until
  // the next call of any method. All zero after the end.
  virtual absl::Span<const uint32_t> Allowed() = 0;
  // Returns the bytes that must come next, as far as they are determined, at most kMaxForcedBytes;
  // empty after the end. They may end within a character.
  virtual std::string Forced() = 0;
  // Returns the tokens that must come next, if it forces tokens rather than bytes.
  virtual std::vector<TokenId> ForcedTokens() { return {}; }
  // Returns a number of next positions in which every token is allowed, whatever tokens come.
  virtual int num_free() const { return 0; }
  // INVALID_ARGUMENT if following the output exceeds the work limit. Then nothing is accepted,
  // allowed or forced until the token that led there is undone.
  virtual absl::Status status() const { return absl::OkStatus(); }
  // The processor time of all calls so far.
  virtual absl::Duration work() const { return absl::ZeroDuration(); }
  // False if following drafts has taken so much work that the output continues without drafts for
  // now.
  virtual bool may_draft() const { return true; }
};

// Thread-safe.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;
  // Returns the state for an empty output.
  virtual std::unique_ptr<ConstraintState> Begin() const = 0;
};

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_TOKEN_CONSTRAINT_H_
