#ifndef TANDEM_MODEL_CHAT_TEMPLATE_H_
#define TANDEM_MODEL_CHAT_TEMPLATE_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "model/tokenizer/tokenizer.h"

namespace tandem {

struct ChatMessage {
  std::string role;  // "system", "user" or "assistant"
  std::string content;
};

// A part of a conversation's prompt: the template's own text, whose special tokens count, or
// somebody's words, in which they do not.
struct ChatPart {
  std::string text;
  SpecialTokens special = SpecialTokens::kPlain;
};

// Makes the prompt of a conversation, as the model was trained to read it: what the reference makes
// of the model's `chat_template` with a generation prompt. The template is a program in Jinja, of
// which nothing is run: its text says which of the common families it belongs to, and in which
// variant. Thread-safe.
//
//   chat_template of            | begins with             | a message
//   ChatML (Qwen, Yi, Hermes)   |                         | <|im_start|>user\nHi<|im_end|>\n
//   Llama 2                     |                         | <s>[INST] Hi [/INST]
//   Llama 3, 3.1 and later      | <|begin_of_text|>       | <|start_header_id|>user ... <|eot_id|>
//   Mistral, Mixtral            | <s>                     | [INST] Hi [/INST]
//   Zephyr, TinyLlama           |                         | <|user|>\nHi</s>\n
//   none at all                 | what text begins with   | \nHi, an answer without \n before it
class ChatTemplate {
 public:
  // What a Hugging Face folder says of its template; texts are empty where it says nothing.
  struct Source {
    std::string jinja, bos_token, eos_token;
  };
  static absl::StatusOr<Source> ReadSource(const std::string& folder);

  enum class Family { kPlain, kChatMl, kLlama2, kLlama3, kMistral, kZephyr };

  // Of a model folder: its chat_template.jinja, else `chat_template` of tokenizer_config.json. Of a
  // GGUF file: `tokenizer.chat_template`.
  // UNIMPLEMENTED, saying so, for a template of no known family; errors of the files else.
  static absl::StatusOr<ChatTemplate> Load(const std::string& model);
  // Of a template's text, empty for none, and its two tokens.
  static absl::StatusOr<ChatTemplate> Parse(std::string_view jinja, std::string_view bos_token,
                                            std::string_view eos_token);

  // The whole prompt. `date`, such as "26 Jul 2024", is for the templates that tell the day.
  // INVALID_ARGUMENT naming messages[i] where the family has no place for it.
  absl::StatusOr<std::vector<ChatPart>> Render(absl::Span<const ChatMessage> messages,
                                               std::string_view date) const;

  Family family() const { return family_; }
  std::string_view name() const;
  // The tokens that end an answer, as they are written; the model's own end tokens may lack them.
  std::vector<std::string> EndTokens() const;

 private:
  static absl::StatusOr<ChatTemplate> LoadGguf(const std::string& path);
  absl::Status ParseChatMl(const std::string& jinja);
  absl::Status ParseMistral(const std::string& jinja);
  std::vector<ChatPart> RenderPlain(absl::Span<const ChatMessage> messages) const;
  std::vector<ChatPart> RenderChatMl(absl::Span<const ChatMessage> messages) const;
  std::vector<ChatPart> RenderLlama2(absl::Span<const ChatMessage> messages) const;
  std::vector<ChatPart> RenderLlama3(absl::Span<const ChatMessage> messages,
                                     std::string_view date) const;
  std::vector<ChatPart> RenderMistral(absl::Span<const ChatMessage> messages) const;
  std::vector<ChatPart> RenderZephyr(absl::Span<const ChatMessage> messages) const;

  Family family_ = Family::kPlain;
  std::string bos_;
  std::string eos_;
  std::string before_;           // the first message
  std::string default_system_;   // of ChatML: in place of a system message
  bool trims_ = false;           // white space around messages
  bool drops_thoughts_ = false;  // of earlier answers, up to "</think>"
  bool tells_date_ = false;      // of Llama 3: a system message that begins with dates
  bool asks_date_ = false;       // today's, not the template's own
  // Of Mistral: what stands around a question and an answer, and where a system message goes.
  std::string question_start_;
  std::string question_end_;
  std::string answer_start_;
  std::string answer_end_;
  enum class SystemPlace { kNone, kFirst, kLast } system_place_ = SystemPlace::kNone;
  // Of Zephyr: behind a message, and behind the last header.
  std::string message_end_;
  std::string prompt_end_;
};

// The tokens of a conversation's prompt. In what messages say special tokens do not count. Errors:
// Render's, and INVALID_ARGUMENT naming `messages` for what is no UTF-8 or nothing at all.
absl::StatusOr<std::vector<TokenId>> EncodeChat(const ChatTemplate& chat,
                                                const Tokenizer& tokenizer,
                                                absl::Span<const ChatMessage> messages,
                                                std::string_view date);

// EndTokens() as ids of the vocabulary, for Request::stop_tokens.
std::vector<TokenId> EndTokenIds(const ChatTemplate& chat, const Tokenizer& tokenizer);

}  // namespace tandem

#endif  // TANDEM_MODEL_CHAT_TEMPLATE_H_
