#ifndef TANDEM_VERIFY_CHOICE_SCORES_H_
#define TANDEM_VERIFY_CHOICE_SCORES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/philox.h"
#include "kvcache/kv_sequence.h"
#include "model/language_model.h"
#include "tandem/logprobs.h"
#include "tandem/types.h"

namespace tandem {

// The probabilities that the target gives to each of some outputs after one prompt:
//
//   p_i = p(t_1 | prompt) p(t_2 | prompt, t_1) ... p(end | prompt, t_1 ... t_n)
//
// from raw rows, where p(end) is the sum over the tokens that end an output. The outputs are scored
// in their lexicographic order, a part of them in each round. Thread-compatible.
class ChoiceScores {
 public:
  // `num_top`: of Rows(), -1 if they are not wanted.
  // REQUIRES: different choices, at least one; `end_tokens` are ascending and not empty.
  ChoiceScores(std::vector<std::vector<TokenId>> choices, std::vector<TokenId> end_tokens,
               int num_top);

  int num_choices() const { return static_cast<int>(choices_.size()); }
  bool is_complete() const { return num_scored_ == num_choices(); }
  // Tokens of the longest choice, without the end.
  int MaxLength() const;
  // INVALID_ARGUMENT if a row is not a distribution. No further choices are then scored.
  const absl::Status& status() const { return status_; }

  // A run of the choices that are scored next.
  struct Part {
    int count = 0;
    int num_rows = 0;   // that their tree needs
    int64_t pages = 0;  // of the target's cache that they take at most while they are scored
  };
  // Returns as many as need at most `max_rows` and `max_pages`, but at least one. `prompt` holds
  // the prompt without its last token.
  Part NextPart(const KvSequence& prompt, int max_rows, int64_t max_pages) const;

  // The logarithms of p_i. REQUIRES: is_complete(); so do those below.
  std::vector<double> Logprobs() const;
  // The choice's tokens and the likeliest token that ends it.
  std::vector<TokenId> OutputOf(int choice) const;
  // The log-probabilities of OutputOf(choice), from the rows that decide its tokens.
  const std::vector<TokenLogprobs>& RowsOf(int choice) const { return choices_[choice].rows; }

 private:
  friend class ChoicePasses;
  struct Choice {
    std::vector<TokenId> tokens;
    double logprob = 0.0;
    TokenId end = 0;
    std::vector<TokenLogprobs> rows{};
  };

  // The number of first tokens that the choices at these places of `order_` have in common.
  int NumShared(int a, int b) const;

  std::vector<Choice> choices_;
  std::vector<TokenId> end_tokens_;
  int num_top_;
  std::vector<int> order_;  // of the choices, by their tokens
  int num_scored_ = 0;      // in that order
  absl::Status status_;
};

// A session's share of a call of ScoreChoices.
struct ChoiceRequest {
  ChoiceScores* scores = nullptr;
  int count = 0;                   // of the next choices
  TokenId last = 0;                // the prompt's last token
  const KvSequence* kv = nullptr;  // the prompt's other tokens
};

// Scores the next choices of all requests, on forks of their prompts: branches of the tree of
// tokens share the pages and the rows of their common tokens. A pass has at most `max_rows` rows.
// If the choices of a branch have few common tokens, each reads them again, which saves a pass. On
// error no choice was scored.
absl::Status ScoreChoices(LanguageModel* target, absl::Span<const ChoiceRequest> requests,
                          int max_rows);

// Returns the logarithms of p_i / (p_1 + p_2 + ...). INVALID_ARGUMENT if all p_i are zero.
absl::StatusOr<std::vector<double>> NormalizedLogprobs(absl::Span<const double> logprobs);

// Draws i with a probability in proportion to p_i^(1 / temperature), for a `uniform` in (0, 1). At
// temperature 0, or close to it, takes the largest, the first among equals.
// REQUIRES: one of `logprobs` is finite.
int DrawChoice(absl::Span<const double> logprobs, float temperature, double uniform);
// Returns the number that draws the choice of an output whose first token is at `position`.
double ChoiceUniform(const RandomSource& random, int position);

}  // namespace tandem

#endif  // TANDEM_VERIFY_CHOICE_SCORES_H_
