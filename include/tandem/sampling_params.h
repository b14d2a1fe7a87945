#ifndef TANDEM_INCLUDE_TANDEM_SAMPLING_PARAMS_H_
#define TANDEM_INCLUDE_TANDEM_SAMPLING_PARAMS_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "tandem/token_constraint.h"
#include "tandem/types.h"

namespace tandem {

// How to turn logits into the distribution to draw from. One meaning for plain decoding, every
// verified row and the draft: docs/sampling.md.
struct SamplingParams {
  float temperature = 1.0f;         // >= 0; below 1e-5 greedy: all mass on the argmax
  int top_k = 0;                    // keep the k largest; 0 keeps everything
  float top_p = 1.0f;               // in (0, 1]: the most likely tokens that reach this sum
  float min_p = 0.0f;               // in [0, 1]: tokens at least this fraction of the largest
  float repetition_penalty = 1.0f;  // > 0: on every token of prompt and output, once
  float frequency_penalty = 0.0f;   // in [-2, 2]: on every token of the output, per occurrence
  float presence_penalty = 0.0f;    // in [-2, 2]: on every token of the output, once
  std::vector<std::pair<TokenId, float>> logit_bias = {};  // added; in [-100, 100]
  // Tokens of output before which none of `ending_tokens` may come; >= 0.
  int min_tokens = 0;
  // What would end a generation: an engine fills them in from its request.
  std::vector<TokenId> ending_tokens = {};
  // The constraint on the output, or null. An engine fills it in from its request. min_tokens
  // yields to it where it allows ending tokens alone.
  std::shared_ptr<const TokenConstraint> constraint = nullptr;

  bool is_greedy() const { return temperature < 1e-5f; }
  bool has_penalties() const {
    return repetition_penalty != 1.0f || frequency_penalty != 0.0f || presence_penalty != 0.0f;
  }
  // Whether a row depends on the tokens before it beyond its logits.
  bool needs_history() const { return has_penalties() || min_tokens > 0 || constraint != nullptr; }

  // Whether a row's distribution depends on its logits alone, edited by nothing.
  bool takes_row() const { return !needs_history() && logit_bias.empty(); }
  // Whether a row's next token is its logits' ArgMax, whatever was before.
  bool takes_largest() const { return is_greedy() && takes_row(); }

  // INVALID_ARGUMENT naming the field, what was given and what is allowed.
  absl::Status Validate(int vocab_size) const;
};

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_SAMPLING_PARAMS_H_
