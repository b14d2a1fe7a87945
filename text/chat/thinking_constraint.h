#ifndef TANDEM_TEXT_CHAT_THINKING_CONSTRAINT_H_
#define TANDEM_TEXT_CHAT_THINKING_CONSTRAINT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tandem/reasoning.h"
#include "tandem/token_constraint.h"
#include "tandem/tokenizer.h"
#include "tandem/types.h"

namespace tandem {

// The maximum number of tokens of a reasoning with this budget: after the budget, a window of
// min(32, budget / 4) tokens in which it may end with a line.
int ThinkingWindow(int max_tokens);

// Ends reasoning that exceeds its budget. All tokens are allowed, except that the tokens of the end
// marker are forced once: after `max_tokens` tokens of reasoning at the next line end, or after
// `window` more. A marker that the text has begun by then is completed, and so is a character.
// The forced tokens depend only on the tokens before them, so verification handles them like those
// of any constraint.
class ThinkingConstraint final : public TokenConstraint {
 public:
  struct Rules {
    ReasoningSplitter::Options markers{};
    int max_tokens = 0;
    int window = 0;
    int vocab_size = 0;  // the model's
    // The bytes of a token in the text; thread-safe.
    std::function<std::string_view(TokenId)> text_of{};
    // [i] is the tokens that complete the end marker after its first i bytes; not empty.
    std::vector<std::vector<TokenId>> closings{};
  };
  // `inner` is a further constraint on the output, or null.
  explicit ThinkingConstraint(Rules rules, std::shared_ptr<const TokenConstraint> inner = nullptr);
  // For a tokenizer, which must outlive the result. INVALID_ARGUMENT naming `max_thinking_tokens`
  // if the budget is negative or the vocabulary cannot write the end marker.
  static absl::StatusOr<std::shared_ptr<const TokenConstraint>> Make(
      const ThinkingBudget& budget, const Tokenizer& tokenizer, int vocab_size,
      std::shared_ptr<const TokenConstraint> inner);

  std::unique_ptr<ConstraintState> Begin() const override;

 private:
  const std::shared_ptr<const Rules> rules_;
  const std::shared_ptr<const TokenConstraint> inner_;
  const std::shared_ptr<const std::vector<uint32_t>> everything_;  // the mask of all tokens
};

}  // namespace tandem

#endif  // TANDEM_TEXT_CHAT_THINKING_CONSTRAINT_H_
