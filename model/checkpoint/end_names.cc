#include "model/checkpoint/end_names.h"

#include <algorithm>

#include "absl/algorithm/container.h"

namespace tandem {
namespace {

// Names of turn ends come first, so that the turn ends of two vocabularies are paired with each
// other.
constexpr std::string_view kNames[] = {
    "<|eot_id|>",             // Llama 3
    "<|im_end|>",             // ChatML
    "<|end|>",                // Phi-3
    "<end_of_turn>",          // Gemma 2 and 3
    "<turn|>",                // Gemma 4
    "<end_of_utterance>",     // SmolVLM
    "<EOT>",                  // Code Llama
    "_<EOT>",                 //
    "[EOT]",                  // Kimi K2
    "<|endoftext|>",          // GPT-2, Qwen
    "<|end_of_text|>",        // Granite, Llama 3
    "</s>",                   // Llama 2
    "<eos>",                  // Gemma
    "[EOS]",                  // Kimi K2
    "<｜end▁of▁sentence｜>",  // DeepSeek
    "[e~[",                   // MiniMax
    "<|eom_id|>",             // Llama 3.1
    "<|return|>",             // gpt-oss
    "<|call|>",
    "<|flush|>",  // Solar
    "<|calls|>",
    "<|tool_response>",  // Gemma 4
};

constexpr std::string_view kPadding[] = {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"};
constexpr std::string_view kRepository[] = {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>",
                                            "<reponame>"};
constexpr std::string_view kFile[] = {"<|file_sep|>"};
constexpr FillEnd kFillEnds[] = {{"tokenizer.ggml.fim_pad_token_id", kPadding},
                                 {"tokenizer.ggml.fim_rep_token_id", kRepository},
                                 {"tokenizer.ggml.fim_sep_token_id", kFile}};

}  // namespace

absl::Span<const FillEnd> FillEnds() { return kFillEnds; }

void AddEndsByName(absl::FunctionRef<TokenId(std::string_view)> id_of,
                   absl::FunctionRef<bool(const FillEnd&)> is_stated, std::vector<TokenId>* ends) {
  const auto add = [&](std::string_view name) {
    const TokenId id = id_of(name);
    if (id >= 0 && !absl::c_linear_search(*ends, id)) ends->push_back(id);
    return id >= 0;
  };
  for (const std::string_view name : kNames) add(name);
  for (const FillEnd& part : kFillEnds) {
    if (!is_stated(part)) absl::c_find_if(part.names, add);
  }
  const auto has = [&](std::string_view name) { return absl::c_linear_search(*ends, id_of(name)); };
  const auto remove = [&](std::string_view name) {
    ends->erase(std::remove(ends->begin(), ends->end(), id_of(name)), ends->end());
  };
  // In these vocabularies <|end|> ends only a part of an answer, such as the reasoning.
  const bool calls = has("<|call|>") || has("<|calls|>");
  if (calls && (has("<|return|>") || has("<|flush|>"))) remove("<|end|>");
  // In this vocabulary </s> is ordinary text.
  if (has("<|tool_response>")) remove("</s>");
}

}  // namespace tandem
