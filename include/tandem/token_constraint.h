// What the tokens of an output keep to, whatever says so.
#ifndef TANDEM_INCLUDE_TANDEM_TOKEN_CONSTRAINT_H_
#define TANDEM_INCLUDE_TANDEM_TOKEN_CONSTRAINT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "tandem/types.h"

namespace tandem {

// The most bytes that ConstraintState::Forced gives: more than drafts can use, however long a
// literal is.
inline constexpr size_t kMaxForcedBytes = 512;

// Where one output is. Thread-compatible.
class ConstraintState {
 public:
  virtual ~ConstraintState() = default;
  virtual std::unique_ptr<ConstraintState> Clone() const = 0;

  // Takes in the next token. False, and nothing changes, if it may not come next. A token that
  // takes more to follow than it may is taken in as well, and status() tells.
  virtual bool Accept(TokenId token) = 0;
  // Takes back the last token that was accepted. REQUIRES: there is one, and it is not committed.
  virtual void Undo() = 0;
  // All accepted tokens are final. Only the time that these took counts against the output's limit:
  // work on tokens that are taken back never ends an output.
  virtual void Commit() {}
  // Bit v % 32 of word v / 32 tells whether token v may come next. Valid until the next call of any
  // method. All zero behind an end.
  virtual absl::Span<const uint32_t> Allowed() = 0;
  // The bytes that must come next, as far as they are certain, at most kMaxForcedBytes; empty after
  // an end. They may end within a character.
  virtual std::string Forced() = 0;
  // INVALID_ARGUMENT where it takes more to follow the output than it may: then nothing is
  // accepted, allowed or forced, until the token that led there is taken back.
  virtual absl::Status status() const { return absl::OkStatus(); }
  // False where drafts have taken so much to follow that the output goes on without for now.
  virtual bool may_draft() const { return true; }
};

// Thread-safe.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;
  // Of an empty output.
  virtual std::unique_ptr<ConstraintState> Begin() const = 0;
};

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_TOKEN_CONSTRAINT_H_
