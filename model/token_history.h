#ifndef TANDEM_MODEL_TOKEN_HISTORY_H_
#define TANDEM_MODEL_TOKEN_HISTORY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/hash_map.h"
#include "tandem/token_constraint.h"
#include "tandem/types.h"

namespace tandem {

// The state of a sequence that a row's distribution depends on beyond its logits: the number of
// occurrences of each token (for penalties), the length of the output, and the state of its
// constraint. AddOutput and RemoveOutput undo each other, so a walk along drafted tokens can be
// undone.
class TokenHistory {
 public:
  struct Count {
    int in_prompt = 0;
    int in_output = 0;
  };

  TokenHistory() = default;
  // The history of an empty output that must follow `constraint`; null: no constraint.
  explicit TokenHistory(const TokenConstraint* constraint)
      : TokenHistory(constraint == nullptr ? nullptr : constraint->Begin()) {}
  explicit TokenHistory(std::unique_ptr<ConstraintState> constraint)
      : constraint_(std::move(constraint)) {}
  TokenHistory(const TokenHistory& other);
  TokenHistory& operator=(const TokenHistory& other);
  TokenHistory(TokenHistory&&) = default;
  TokenHistory& operator=(TokenHistory&&) = default;

  void AddPrompt(absl::Span<const TokenId> tokens);
  // A token may break the constraint; then no token is allowed after it. If this throws, nothing
  // changes.
  void AddOutput(TokenId token);
  // Makes all added tokens final: they will not be removed.
  void Commit();
  // Removes the last output token.
  // REQUIRES: it was added as an output token and not committed.
  void RemoveOutput(TokenId token);

  const HashMap<TokenId, Count>& counts() const { return counts_; }
  int num_output() const { return num_output_; }
  // The mask of tokens that may come next (ConstraintState::Allowed).
  // REQUIRES: made with a constraint.
  absl::Span<const uint32_t> Allowed() const;
  // Whether no token broke the constraint, and its status is OK.
  bool is_followed() const;
  // ConstraintState::status and ::may_draft; OK and true without a constraint.
  absl::Status constraint_status() const;
  bool may_draft() const;
  // ConstraintState::work; zero without a constraint.
  absl::Duration constraint_work() const;
  // ConstraintState::Forced; empty without a constraint.
  std::string Forced() const;
  // ConstraintState::ForcedTokens; empty without a constraint.
  std::vector<TokenId> ForcedTokens() const;
  // ConstraintState::num_free. REQUIRES: made with a constraint.
  int num_free() const;

 private:
  HashMap<TokenId, Count> counts_;  // entries are never both zero
  int num_output_ = 0;
  std::unique_ptr<ConstraintState> constraint_;
  int num_broken_ = 0;  // number of tokens from the first one that broke the constraint
};

// Adds drafted tokens to a history, and removes them in its destructor. A no-op with null.
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
