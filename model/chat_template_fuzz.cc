// Any bytes as a chat template, and behind a zero byte as the words of a conversation: refused, or
// a prompt in which the words are whole and none of them is a special token.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "model/chat_template.h"
#include "model/tokenizer/tokenizer.h"

namespace tandem {
namespace {

// Letters for every ASCII character, and the special tokens of some families.
std::unique_ptr<Tokenizer> MakeTokenizer() {
  constexpr char kFile[] = R"({"added_tokens": [
      {"id": 3, "content": "<|im_start|>", "special": true, "normalized": false},
      {"id": 4, "content": "<|im_end|>", "special": true, "normalized": false},
      {"id": 5, "content": "<s>", "special": true, "normalized": false, "rstrip": true},
      {"id": 6, "content": "</s>", "special": true, "normalized": false, "lstrip": true}],
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})";
  auto tokenizer = Tokenizer::Parse(kFile, "", "fuzz");
  TANDEM_CHECK(tokenizer.ok());
  return *std::move(tokenizer);
}

constexpr const char* kTemplates[] = {"<|im_start|><|im_end|>",
                                      "<|im_start|><|im_end|></think>",
                                      "[INST] <<SYS>>",
                                      "bos_token <|start_header_id|><|eot_id|> | trim",
                                      "'[INST] ' ' [/INST]' eos_token",
                                      "'<|user|>\n' + message['content'] + eos_token }}\n",
                                      ""};

size_t NumSpecial(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  size_t count = 0;
  for (const TokenId id : ids) count += tokenizer.IsSpecial(id);
  return count;
}

void Exercise(const ChatTemplate& chat, const Tokenizer& tokenizer, const std::string& words) {
  const std::vector<std::vector<ChatMessage>> talks = {
      {{"user", words}},
      {{"system", words}, {"user", words}, {"assistant", words}, {"user", words}}};
  for (const std::vector<ChatMessage>& messages : talks) {
    const auto parts = chat.Render(messages, "01 Jan 2026");
    if (!parts.ok()) continue;
    std::vector<MarkedText> marked, own;
    for (const ChatPart& part : *parts) {
      marked.push_back({part.text, part.special});
      if (part.special == SpecialTokens::kParse) own.push_back(marked.back());
      TANDEM_CHECK(part.special == SpecialTokens::kParse ||
                   words.find(part.text) != std::string::npos);
    }
    const auto ids = tokenizer.EncodeMarked(marked);
    if (!ids.ok()) continue;
    size_t expected = 0;
    for (const MarkedText& part : own) {
      expected += NumSpecial(tokenizer, *tokenizer.Encode(part.text, SpecialTokens::kParse));
    }
    TANDEM_CHECK(NumSpecial(tokenizer, *ids) == expected);
  }
}

void FuzzOne(std::string_view input) {
  static const std::unique_ptr<Tokenizer> tokenizer = MakeTokenizer();
  const size_t end = std::min(input.find('\0'), input.size());
  const std::string words(input.substr(std::min(end + 1, input.size())));
  if (const auto chat = ChatTemplate::Parse(input.substr(0, end), "<s>", "</s>"); chat.ok()) {
    (void)chat->Render({{"user", words}}, "01 Jan 2026");
  }
  for (const char* jinja : kTemplates) {
    const auto chat = ChatTemplate::Parse(jinja, "<s>", "</s>");
    TANDEM_CHECK(chat.ok());
    Exercise(*chat, *tokenizer, words);
  }
}

}  // namespace
}  // namespace tandem

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tandem::FuzzOne({reinterpret_cast<const char*>(data), size});
  return 0;
}
