#ifndef TANDEM_INCLUDE_TANDEM_SAMPLING_PARAMS_H_
#define TANDEM_INCLUDE_TANDEM_SAMPLING_PARAMS_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "tandem/parameter.h"
#include "tandem/token_constraint.h"
#include "tandem/types.h"

namespace tandem {

// How to turn logits into the distribution to draw from. One meaning for plain decoding, every
// verified row and the draft: docs/sampling.md.
struct SamplingParams {
  // VisitSamplingParams has their limits.
  float temperature = 1.0f;         // below 1e-5 greedy: all mass on the argmax
  int top_k = 0;                    // keep the k largest; 0 keeps everything
  float top_p = 1.0f;               // the most likely tokens that reach this sum
  float min_p = 0.0f;               // tokens at least this fraction of the largest
  float repetition_penalty = 1.0f;  // on every token of prompt and output, once
  float frequency_penalty = 0.0f;   // on every token of the output, per occurrence
  float presence_penalty = 0.0f;    // on every token of the output, once
  std::vector<std::pair<TokenId, float>> logit_bias = {};  // added; in [-100, 100]
  // Tokens of output before which none of `ending_tokens` may come.
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
  bool takes_argmax() const { return is_greedy() && takes_row(); }

  // INVALID_ARGUMENT naming the field, what was given and what is allowed.
  absl::Status Validate(int vocab_size) const;
};

// Calls visitor(Parameter, member, Limits) for every number that users may set.
template <typename Visitor>
void VisitSamplingParams(const Visitor& visit) {
  visit({"temperature", "--temperature", "T", "0 always takes the most likely token"},
        &SamplingParams::temperature, {.low = 0});
  visit({"top_k", "--top-k", "K", "Keep the K most likely tokens; 0 keeps all"},
        &SamplingParams::top_k, {.low = 0});
  visit({"top_p", "--top-p", "P", "Keep the most likely tokens that reach this sum"},
        &SamplingParams::top_p, {.low = 0, .high = 1, .excludes_low = true});
  visit(
      {"min_p", "--min-p", "P", "Keep tokens with at least this share of the largest probability"},
      &SamplingParams::min_p, {.low = 0, .high = 1});
  visit({"repetition_penalty", "--repetition-penalty", "R", "Above 1 avoids tokens seen before"},
        &SamplingParams::repetition_penalty, {.low = 0, .excludes_low = true});
  visit({"frequency_penalty", "--frequency-penalty", "F", "Taken off per occurrence in the output"},
        &SamplingParams::frequency_penalty, {.low = -2, .high = 2});
  visit({"presence_penalty", "--presence-penalty", "F", "Taken off once for tokens in the output"},
        &SamplingParams::presence_penalty, {.low = -2, .high = 2});
  visit({"min_tokens", "--min-tokens", "N",
         "No end token, stop token or stop text counts before N tokens"},
        &SamplingParams::min_tokens, {.low = 0});
}

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_SAMPLING_PARAMS_H_
