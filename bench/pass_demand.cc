#include "bench/pass_demand.h"

#include <algorithm>

#include "checkpoint/model_tensors.h"

namespace tandem {

PassCounter::PassCounter(const ModelConfig& config, int64_t bytes_read, int64_t kv_bytes,
                         DType dtype, bool bf16_products)
    : bytes_read_(static_cast<double>(bytes_read)),
      kv_bytes_(static_cast<double>(kv_bytes)),
      place_(MachineLimits::PlaceOf(bytes_read)),
      input_(DotInputOf(dtype, bf16_products)) {
  for (const TensorSpec& tensor : TensorsOf(config)) {
    body_elements_ += ShareRead(tensor, config) * static_cast<double>(tensor.num_elements());
  }
  head_elements_ = static_cast<double>(config.vocab_size) * config.hidden_size;
  body_elements_ -= head_elements_;
  attended_elements_ = 2.0 * config.num_layers * config.num_heads * config.head_dim;
}

Demand PassCounter::Of(const PassShape& pass) const {
  // Row r sees context + r + 1 tokens.
  const double seen = pass.rows * (pass.context + 0.5 * (pass.rows + 1));
  const double products =
      body_elements_ * pass.rows + head_elements_ * pass.logit_rows + attended_elements_ * seen;
  return {.bytes = bytes_read_ + kv_bytes_ * pass.batch * pass.context,
          .place = place_,
          .flops = 2.0 * pass.batch * products,
          .input = input_};
}

Demand PassCounter::OfPrompt(int num_tokens, int chunk_tokens) const {
  Demand sum{.bytes = 0.0, .place = place_, .flops = 0.0, .input = input_};
  for (int begin = 0; begin < num_tokens; begin += chunk_tokens) {
    const int end = std::min(begin + chunk_tokens, num_tokens);
    const Demand chunk =
        Of({.rows = end - begin, .context = begin, .logit_rows = end == num_tokens ? 1 : 0});
    sum.bytes += chunk.bytes;
    sum.flops += chunk.flops;
  }
  return sum;
}

}  // namespace tandem
