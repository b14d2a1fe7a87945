// What the tokens of an output keep to, whatever says so.
#ifndef TANDEM_MODEL_CONSTRAINT_TOKEN_CONSTRAINT_H_
#define TANDEM_MODEL_CONSTRAINT_TOKEN_CONSTRAINT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/types.h"

namespace tandem {

// Where one output is. Thread-compatible.
class ConstraintState {
 public:
  virtual ~ConstraintState() = default;
  virtual std::unique_ptr<ConstraintState> Clone() const = 0;

  // Takes in the next token. False, and nothing changes, if it may not come next.
  virtual bool Accept(TokenId token) = 0;
  // Takes back the last token that was accepted. REQUIRES: there is one.
  virtual void Undo() = 0;
  // Bit v % 32 of word v / 32 tells whether token v may come next. Valid until the next call of any
  // method. All zero behind an end.
  virtual absl::Span<const uint32_t> Allowed() = 0;
  // The bytes that must come next, as far as they are certain; empty behind an end.
  virtual std::string Forced() = 0;
  // INVALID_ARGUMENT once it takes more to follow the output than it may: then nothing is accepted,
  // allowed or forced any more, and there is nothing left to take back.
  virtual absl::Status status() const { return absl::OkStatus(); }
};

// Thread-safe.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;
  // Of an empty output.
  virtual std::unique_ptr<ConstraintState> Begin() const = 0;
};

}  // namespace tandem

#endif  // TANDEM_MODEL_CONSTRAINT_TOKEN_CONSTRAINT_H_
