// What a model's passes leave for a draft head to read.
#include <utility>

#include "absl/algorithm/container.h"
#include "base/check.h"
#include "model/transformer.h"

namespace tandem {

void Transformer::LeaveStates(std::vector<int> layers) {
  TANDEM_CHECK(group_ == nullptr && absl::c_all_of(layers, [this](int layer) {
                 return 0 <= layer && layer <= config_.num_layers;
               }));
  graph_cache_->Forget();
  left_layers_ = std::move(layers);
  workspace_.states = {};
}

// What comes to `layer`, to where it is wanted.
void Transformer::LeaveState(int layer, int rows, const int32_t* all_rows) {
  const int hidden_size = config_.hidden_size;
  const MatrixView hidden = View(workspace_.hidden, rows, hidden_size);
  const MatrixView states = View(workspace_.states, rows, state_size());
  for (int i = 0; i < static_cast<int>(left_layers_.size()); ++i) {
    if (left_layers_[i] != layer) continue;
    MatrixView left = states;
    left.data = static_cast<float*>(states.data) + int64_t{i} * hidden_size;
    left.cols = hidden_size;
    if (layer < config_.num_layers) {
      backend_->GatherRows(hidden, all_rows, left);
      continue;
    }
    const NormedRows normed = Normed(final_norm_, hidden, left);
    backend_->RmsNorm(normed.x, normed.weight, normed.epsilon, left);
  }
}

}  // namespace tandem
