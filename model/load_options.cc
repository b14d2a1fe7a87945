#include "absl/strings/str_cat.h"
#include "model/transformer.h"

namespace tandem {

bool Transformer::LoadOptions::SetsHead(const ModelConfig& config) const {
  return sets_head_from > 0 && config.vocab_size >= sets_head_from;
}

std::string Transformer::LoadOptions::FormOf(const Weights& weights) const {
  const std::string quantization = weights.quantization();
  return absl::StrCat("quantized ", quantized.has_value() ? NameOf(*quantized) : "not",
                      which == Quantize::kAll ? ", all" : "",
                      has_exact_activations ? ", exact activations" : "",
                      quantization.empty() ? "" : ", ", quantization);
}

}  // namespace tandem
