#include "proof/target_law.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/status_macros.h"

namespace tandem {

absl::Status MakeDistributionAfter(RememberedRows* model, absl::Span<const TokenId> prompt,
                                   absl::Span<const TokenId> output, const SamplingParams& sampling,
                                   size_t vocab_size, Distribution* row) {
  std::vector<TokenId> context(prompt.begin(), prompt.end());
  context.insert(context.end(), output.begin(), output.end());
  TokenHistory history(sampling.constraint.get());
  history.AddPrompt(prompt);
  for (const TokenId token : output) history.AddOutput(token);
  ASSIGN_OR_RETURN(const absl::Span<const float> logits,
                   model->RowAfter(context, static_cast<int>(output.size())));
  return MakeDistribution(logits.first(std::min(logits.size(), vocab_size)), sampling, &history,
                          row);
}

// Depth first: which paths are followed depends on their own probability only, so order is free.
absl::StatusOr<TargetLaw> TargetLaw::Expand(RememberedRows* target,
                                            absl::Span<const TokenId> prompt,
                                            const SamplingParams& sampling,
                                            const Options& options) {
  TANDEM_CHECK(options.length >= 1);
  struct Open {
    int node;
    std::vector<TokenId> output;
    double probability;
  };
  TargetLaw law;
  law.length_ = options.length;
  law.nodes_.emplace_back();
  Distribution row;
  std::vector<Open> open = {{.node = 0, .output = {}, .probability = 1.0}};
  while (!open.empty()) {
    const Open at = std::move(open.back());
    open.pop_back();
    RETURN_IF_ERROR(
        MakeDistributionAfter(target, prompt, at.output, sampling, target->vocab_size(), &row));
    if (row.only >= 0) {  // greedy
      row.probs.assign(target->vocab_size(), 0.0f);
      row.probs[row.only] = 1.0f;
    }
    double sum = 0.0;  // of f32, so not quite 1; drawing needs no normaliser
    for (const float p : row.probs) sum += p;
    double left = 0.0;
    const bool is_last = static_cast<int>(at.output.size()) + 1 == options.length;
    for (TokenId v = 0; v < static_cast<TokenId>(row.probs.size()); ++v) {
      const double probability = at.probability * row.probs[v] / sum;
      if (probability < options.min_probability) {
        left += probability;
        continue;
      }
      if (is_last) {
        law.nodes_[at.node].children[v] = static_cast<int>(law.probabilities_.size());
        law.probabilities_.push_back(probability);
        continue;
      }
      const int child = static_cast<int>(law.nodes_.size());
      law.nodes_[at.node].children[v] = child;
      law.nodes_.emplace_back();
      open.push_back({.node = child, .output = at.output, .probability = probability});
      open.back().output.push_back(v);
    }
    law.nodes_[at.node].left_cell = static_cast<int>(law.probabilities_.size());
    law.probabilities_.push_back(left);
  }
  return law;
}

int TargetLaw::CellOf(absl::Span<const TokenId> output) const {
  int node = 0;
  for (size_t i = 0; i < output.size(); ++i) {
    const auto it = nodes_[node].children.find(output[i]);
    if (it == nodes_[node].children.end()) return nodes_[node].left_cell;
    if (static_cast<int>(i) + 1 == length_) return it->second;
    node = it->second;
  }
  return -1;
}

}  // namespace tandem
