#ifndef TANDEM_INCLUDE_TANDEM_CHAT_TEMPLATE_H_
#define TANDEM_INCLUDE_TANDEM_CHAT_TEMPLATE_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "tandem/chat_input.h"
#include "tandem/tokenizer.h"

namespace tandem {

namespace jinja {
struct Limits;
}  // namespace jinja

// The form in which a template expects calls in an assistant's message. DeepSeek-R1's template
// writes calls only for messages without content, and expects arguments as text.
struct CallStyle {
  bool replaces_content = false;    // empty content becomes null
  bool has_text_arguments = false;  // arguments are the text that json.dumps writes
};
// Returns the message in that style.
absl::StatusOr<JsonValue> InCallStyle(const JsonValue& message, const CallStyle& style);

// Writes the prompt of a conversation in the form that the model was trained on. It runs the
// model's `chat_template`, a Jinja program, as transformers does. Each byte of the result is
// tracked as the template's or a message's, whatever the template does with it. The usual roles
// count as the template's text, because some templates turn them into a token. A model without a
// template gets plain text: the BOS token first, each question on a new line, and answers in place.
// Thread-safe.
//
//   ASSIGN_OR_RETURN(const ChatTemplate chat, ChatTemplate::Load(path));
//   const ChatInput input = ChatInputOf({{.role = "user", .content = "Hi"}}, absl::Now());
//   ASSIGN_OR_RETURN(const std::vector<TokenId> prompt, EncodeChat(chat, tokenizer, input));
class ChatTemplate {
 public:
  // A model's templates and tokens from its files; missing ones are empty.
  struct Source {
    std::string jinja;
    std::string tool_use;  // used instead of `jinja` if there are tools
    std::string bos_token, eos_token;
    std::vector<std::pair<std::string, std::string>> other_tokens = {};  // "pad_token" and so on
  };
  // Reads a GGUF file (`model` or the one in its folder) or a Hugging Face folder. A GGUF file has
  // `tokenizer.chat_template`, the same key with ".tool_use", and the BOS and EOS tokens. In a
  // folder the chat template is chat_template.jinja, else `chat_template` of tokenizer_config.json
  // (in a list, the one named default), else that of chat_template.json. The template for tools is
  // tool_use.jinja in additional_chat_templates, else the one named tool_use in the list. Tokens
  // come from tokenizer_config.json, else from special_tokens_map.json.
  static absl::StatusOr<Source> ReadSource(const std::string& model);

  // Calls ReadSource, then Parse. Errors: those of the files, and Parse's.
  static absl::StatusOr<ChatTemplate> Load(const std::string& model);
  // INVALID_ARGUMENT or UNIMPLEMENTED, naming `chat_template` and the line, if the text is not a
  // template that can be run.
  static absl::StatusOr<ChatTemplate> Parse(const Source& source);
  static absl::StatusOr<ChatTemplate> Parse(std::string_view jinja, std::string_view bos_token,
                                            std::string_view eos_token);

  // Returns the whole prompt. INVALID_ARGUMENT naming `messages`, or a part of it, if the template
  // rejects or cannot process the input, or if it exceeds jinja::Limits.
  absl::StatusOr<std::vector<MarkedText>> Render(const ChatInput& input) const;

  // Whether the model lacks its own template.
  bool is_plain() const;
  // Whether the template writes the name of a message with this role: system, user or assistant.
  // True for other roles, and if a message with a name could not be tried.
  bool WritesNameOf(std::string_view role) const;
  // How the template writes tool calls; nothing if it does not write them. Render uses messages
  // unchanged; InCallStyle converts them.
  const std::optional<CallStyle>& call_style() const { return call_style_; }
  // Whether one of the model's own templates contains `text`.
  bool Mentions(std::string_view text) const;
  // Whether the template reads the functions that a model may call (see generic_tools.h).
  bool HasPlaceForTools() const;
  // Whether the template writes the content of a leading system message.
  bool HasPlaceForSystem() const { return has_place_for_system_; }
  // "jinja" or "plain".
  std::string_view name() const;
  // The text that the template writes after an answer: its end token, and perhaps more. Empty if it
  // writes nothing.
  const std::string& answer_end() const { return answer_end_; }

 private:
  struct Programs;
  absl::StatusOr<std::vector<MarkedText>> Render(const ChatInput& input,
                                                 const jinja::Limits& limits) const;
  std::optional<CallStyle> FindCallStyle() const;
  // Whether the template writes the probe text that is somewhere in this message; nothing if it
  // rejects the message.
  std::optional<bool> WritesProbe(const JsonValue& message) const;
  static absl::StatusOr<Source> ReadGgufSource(const std::string& path);

  std::shared_ptr<const Programs> programs_;
  std::string answer_end_;
  std::vector<std::string> unnamed_roles_;  // roles whose names the template does not write
  std::optional<CallStyle> call_style_;
  bool has_place_for_system_ = false;
};

struct ChatMessage {
  std::string role;  // "system", "user" or "assistant"
  std::string content;
};
// Makes a conversation of these messages that asks for an answer.
ChatInput ChatInputOf(absl::Span<const ChatMessage> messages, absl::Time now);

// Returns the tokens of a conversation's prompt, as RenderChat (generic_tools.h) writes it. Special
// tokens in the text of messages are read as ordinary text. Errors: RenderChat's, and
// INVALID_ARGUMENT naming `messages` if the prompt is not UTF-8 or is empty.
absl::StatusOr<std::vector<TokenId>> EncodeChat(const ChatTemplate& chat,
                                                const Tokenizer& tokenizer, const ChatInput& input);

// Returns the token with which the template ends an answer, for Request::stop_tokens; empty if it
// does not end answers with a token. The model's own list of end tokens may lack it.
std::vector<TokenId> EndTokenIds(const ChatTemplate& chat, const Tokenizer& tokenizer);

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_CHAT_TEMPLATE_H_
