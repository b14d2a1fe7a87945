// Any text as config.json, and what follows its first zero byte as generation_config.json: refused,
// or a configuration whose sizes fit together.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/check.h"
#include "model/model_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  absl::string_view text(reinterpret_cast<const char*>(data), size);
  std::optional<absl::string_view> generation;
  if (const size_t end = text.find('\0'); end != absl::string_view::npos) {
    generation = text.substr(end + 1);
    text = text.substr(0, end);
  }
  const auto model = tandem::ParseModelConfig(text, "config", generation, "generation");
  if (!model.ok()) {
    TANDEM_CHECK(model.status().message().size() < 1000);
    return 0;
  }
  TANDEM_CHECK(model->num_heads % model->num_kv_heads == 0);
  TANDEM_CHECK(model->windows.size() == static_cast<size_t>(model->num_layers));
  for (const tandem::TokenId id : model->eos_token_ids) {
    TANDEM_CHECK(0 <= id && id < model->vocab_size);
  }
  for (const float frequency : model->rope.InverseFrequencies(model->head_dim)) {
    TANDEM_CHECK(std::isfinite(frequency) && frequency >= 0.0f);
  }
  return 0;
}
