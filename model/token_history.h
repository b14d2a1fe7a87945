#ifndef TANDEM_MODEL_TOKEN_HISTORY_H_
#define TANDEM_MODEL_TOKEN_HISTORY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "tandem/token_constraint.h"
#include "tandem/types.h"

namespace tandem {

// What a row's distribution depends on beyond its logits: how often each token stands in the
// sequence, which penalties look at, the length of the output, and where it is in its constraint.
// Adding and removing an output token undo each other, so a walk along drafted tokens can be taken
// back.
class TokenHistory {
 public:
  struct Count {
    int in_prompt = 0;
    int in_output = 0;
  };

  TokenHistory() = default;
  // Of an output that keeps to `constraint`, at its beginning; to nothing with null.
  explicit TokenHistory(const TokenConstraint* constraint)
      : TokenHistory(constraint == nullptr ? nullptr : constraint->Begin()) {}
  explicit TokenHistory(std::unique_ptr<ConstraintState> constraint)
      : constraint_(std::move(constraint)) {}
  TokenHistory(const TokenHistory& other);
  TokenHistory& operator=(const TokenHistory& other);
  TokenHistory(TokenHistory&&) = default;
  TokenHistory& operator=(TokenHistory&&) = default;

  void AddPrompt(absl::Span<const TokenId> tokens);
  // The token may break the constraint; then nothing is allowed after it. An exception of the
  // constraint changes nothing.
  void AddOutput(TokenId token);
  // Everything added is final, and is not removed again.
  void Commit();
  // Of the last token. REQUIRES: added before.
  void RemoveOutput(TokenId token);

  const absl::flat_hash_map<TokenId, Count>& counts() const { return counts_; }
  int num_output() const { return num_output_; }
  // What may come next, as ConstraintState has it. REQUIRES: made with a constraint.
  absl::Span<const uint32_t> Allowed() const;
  // Whether no token broke the constraint, and it can be followed up to here.
  bool is_followed() const;
  // ConstraintState::status and ::may_draft; OK and true without a constraint.
  absl::Status constraint_status() const;
  bool may_draft() const;
  // ConstraintState::Forced; empty without a constraint.
  std::string Forced() const;

 private:
  absl::flat_hash_map<TokenId, Count> counts_;  // entries are never both zero
  int num_output_ = 0;
  std::unique_ptr<ConstraintState> constraint_;
  int num_broken_ = 0;  // tokens from the first on that broke the constraint
};

// Adds drafted tokens to a history, and takes them back at its end. Nothing with null.
class DraftWalk {
 public:
  explicit DraftWalk(TokenHistory* history) : history_(history) {}
  ~DraftWalk();
  DraftWalk(DraftWalk&& other) = default;
  DraftWalk& operator=(DraftWalk&& other) = delete;

  void Add(TokenId token);

 private:
  TokenHistory* history_;
  std::vector<TokenId> tokens_;
};

}  // namespace tandem

#endif  // TANDEM_MODEL_TOKEN_HISTORY_H_
