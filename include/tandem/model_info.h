#ifndef TANDEM_INCLUDE_TANDEM_MODEL_INFO_H_
#define TANDEM_INCLUDE_TANDEM_MODEL_INFO_H_

#include <cstdint>
#include <optional>
#include <string>

namespace tandem {

// A model that the engine runs, for reports.
struct ModelInfo {
  std::string path;
  std::string family;
  std::string dtype;
  int64_t parameters = 0;
  int64_t bytes_read_per_pass = 0;
  std::string kv_cache;  // type of its cache: "f32", "bf16", "int8"
  int64_t kv_bytes_per_token = 0;
  int vocab_size = 0;
  int context_length = 0;
  int num_pages = 0;
  int page_size = 0;  // tokens
  int window = 0;     // of a draft: how many of the last tokens of a long prompt it reads; 0: all
  // Only for a draft whose vocabulary differs from the target's: how many of the target's tokens it
  // can propose.
  std::optional<int> mapped_tokens{};
  // Only for a draft model that proposes several tokens in one pass: its mask token.
  std::optional<int> mask_token{};
  // Only for a draft: the format to which its matrices were quantised at load
  // (EngineOptions::draft_quantize).
  std::string quantize = "none";
  // Only for a draft: the number of tokens in its head. If the head is learned, also its coverage:
  // the share of output tokens in the head, among those that a complete head could propose.
  int head_tokens = 0;
  std::optional<double> head_coverage{};
  // In words, how the weights differ from the files': "quantized not, tied head".
  std::string weights_form{};
};

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_MODEL_INFO_H_
