// The parts of Transformer for the residual: the rows that products read, and sums.
#include "model/transformer.h"

namespace tandem {

// Returns the product that reads `hidden` first in a layer, or in its feed-forward part.
NextProduct Transformer::NextOfResidual(int layer, bool in_feed_forward) const {
  if (group_ != nullptr || config_.is_parallel || layer == config_.num_layers) return {};
  if (in_feed_forward ? config_.has_experts(layer)
                      : config_.state_input == StateInput::kNextToEmbedding) {
    return {};
  }
  const Layer& of = weights_->layers[layer];
  const Buffer& norm = in_feed_forward ? of.mlp_norm : of.attention_norm;
  if (norm.data() != nullptr && config_.norm_form == NormForm::kLayer) return {};
  return {.weight = in_feed_forward ? &of.gate_up : &of.qkv.front(),
          .norm = static_cast<const float*>(norm.data())};
}

// Returns the product with `weight` if it alone reads the result of an operation: not in a group,
// which gathers results.
NextProduct Transformer::OnlyProduct(const PackedWeight& weight) const {
  if (group_ != nullptr) return {};
  return {.weight = &weight};
}

// Returns the rows as a product reads them: normalised by `norm`, or unchanged if it is empty.
//   normed: memory for the result
NormedRows Transformer::Normed(const Buffer& norm, ConstMatrixView x, MatrixView normed) {
  if (norm.data() == nullptr) return {.x = x};
  if (config_.norm_form == NormForm::kLayer) {
    backend_->SubtractMean(x, normed);
    x = normed;
  }
  return {.x = x,
          .weight = static_cast<const float*>(norm.data()),
          .epsilon = config_.rms_norm_epsilon,
          .normed = normed};
}

// hidden += the product, normalised by `norm` unless that is empty.
//   next: the product that reads `hidden` next
void Transformer::AddOutput(ConstMatrixView x, const PackedWeight& weight, const Buffer& norm,
                            const NextProduct& next) {
  const MatrixView hidden = View(workspace_.hidden, x.rows, config_.hidden_size);
  if (norm.data() == nullptr && config_.residual_scale == 1.0f) {
    if (parts_.hidden.size() > 0) {
      backend_->MatMulAdd(x, weight, ColumnsOf(hidden, parts_.hidden), next);
    }
    return Gather(hidden, &RankParts::hidden);
  }
  const MatrixView output = View(workspace_.output, x.rows, config_.hidden_size);
  if (parts_.hidden.size() > 0) backend_->MatMul(x, weight, ColumnsOf(output, parts_.hidden));
  AddOutput(output, norm);
}

// `output`: this rank's columns
void Transformer::AddOutput(MatrixView output, const Buffer& norm) {
  MatrixView normed = output;
  if (norm.data() != nullptr) {
    Gather(output, &RankParts::hidden);
    normed = View(workspace_.normed_output, output.rows, config_.hidden_size);
    backend_->RmsNorm(output, static_cast<const float*>(norm.data()), config_.rms_norm_epsilon,
                      normed);
  }
  const MatrixView hidden = View(workspace_.hidden, output.rows, config_.hidden_size);
  if (parts_.hidden.size() > 0) {
    backend_->AddScaled(ColumnsOf(normed, parts_.hidden), config_.residual_scale,
                        ColumnsOf(hidden, parts_.hidden));
  }
  Gather(hidden, &RankParts::hidden);
}

}  // namespace tandem
