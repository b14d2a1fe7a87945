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

// How to turn logits into the distribution to sample from. The meaning is the same for plain
// decoding, every verified row and the draft: docs/sampling.md.
struct SamplingParams {
  // VisitSamplingParams has the limits.
  float temperature = 1.0f;         // below 1e-5: greedy, all mass on the argmax
  int top_k = 0;                    // keep the k largest; 0 keeps everything
  float top_p = 1.0f;               // keep the most likely tokens that reach this sum
  float min_p = 0.0f;               // keep tokens with at least this fraction of the largest
  float repetition_penalty = 1.0f;  // on every token of prompt and output, once
  float frequency_penalty = 0.0f;   // on every token of the output, per occurrence
  float presence_penalty = 0.0f;    // on every token of the output, once
  std::vector<std::pair<TokenId, float>> logit_bias = {};  // added to logits; in [-100, 100]
  // `ending_tokens` are not allowed before this many output tokens.
  int min_tokens = 0;
  // The tokens that end a generation. An engine fills them in from its request.
  std::vector<TokenId> ending_tokens = {};
  // The constraint on the output, or null. An engine fills it in from its request. Where it allows
  // only ending tokens, min_tokens is ignored.
  std::shared_ptr<const TokenConstraint> constraint = nullptr;

  bool is_greedy() const { return temperature < 1e-5f; }
  bool has_penalties() const {
    return repetition_penalty != 1.0f || frequency_penalty != 0.0f || presence_penalty != 0.0f;
  }
  // Whether a row's distribution depends on the earlier tokens as well as on its logits.
  bool needs_history() const { return has_penalties() || min_tokens > 0 || constraint != nullptr; }

  // Whether a row's distribution depends only on its unmodified logits.
  bool takes_row() const { return !needs_history() && logit_bias.empty(); }
  // Whether a row's next token is the argmax of its logits, regardless of the earlier tokens.
  bool takes_argmax() const { return is_greedy() && takes_row(); }

  // INVALID_ARGUMENT naming the field, the value found and the values allowed.
  absl::Status Validate(int vocab_size) const;
};

// Calls visitor(Parameter, member, Limits) for every number that users can set.
template <typename Visitor>
void VisitSamplingParams(const Visitor& visit) {
  visit({"temperature", "--temperature", "T", "0 always takes the most likely token"},
        &SamplingParams::temperature, {.low = 0});
  visit({"top_k", "--top-k", "K", "Keep the K most likely tokens; 0 keeps all"},
        &SamplingParams::top_k, {.low = 0});
  visit({"top_p", "--top-p", "P", "Keep the most likely tokens whose probabilities reach this sum"},
        &SamplingParams::top_p, {.low = 0, .high = 1, .excludes_low = true});
  visit(
      {"min_p", "--min-p", "P", "Keep tokens with at least this share of the largest probability"},
      &SamplingParams::min_p, {.low = 0, .high = 1});
  visit({"repetition_penalty", "--repetition-penalty", "R", "Above 1 avoids tokens seen before"},
        &SamplingParams::repetition_penalty, {.low = 0, .excludes_low = true});
  visit({"frequency_penalty", "--frequency-penalty", "F",
         "Subtracted for each occurrence of a token in the output"},
        &SamplingParams::frequency_penalty, {.low = -2, .high = 2});
  visit({"presence_penalty", "--presence-penalty", "F",
         "Subtracted once for each token that is in the output"},
        &SamplingParams::presence_penalty, {.low = -2, .high = 2});
  visit({"min_tokens", "--min-tokens", "N",
         "No end token, stop token or stop string ends the output before N tokens"},
        &SamplingParams::min_tokens, {.low = 0});
}

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_SAMPLING_PARAMS_H_
