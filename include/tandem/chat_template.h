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

// How a template wants the calls of an assistant's message. DeepSeek-R1's writes those of messages
// without content only, and its arguments are texts.
struct CallStyle {
  bool replaces_content = false;    // an empty content is none
  bool has_text_arguments = false;  // arguments are written as json.dumps writes them
};
// The message in that style.
absl::StatusOr<JsonValue> InCallStyle(const JsonValue& message, const CallStyle& style);

// Makes the prompt of a conversation, as the model was trained to read it: its `chat_template`, a
// program in Jinja, is run as transformers runs it. Every byte is known to be the template's
// or a message's, through all that the template does with it. Roles are the template's
// where they are of the usual ones: some templates make a token of them. Without a template what
// text begins with stands in front, questions begin lines, and answers go on where the model did.
// Thread-safe.
//
//   ASSIGN_OR_RETURN(const ChatTemplate chat, ChatTemplate::Load(path));
//   const ChatInput input = ChatInputOf({{.role = "user", .content = "Hi"}}, absl::Now());
//   ASSIGN_OR_RETURN(const std::vector<TokenId> prompt, EncodeChat(chat, tokenizer, input));
class ChatTemplate {
 public:
  // A model's templates and tokens, as its files have them; empty where they are missing.
  struct Source {
    std::string jinja;
    std::string tool_use;  // in its place where tools are given
    std::string bos_token, eos_token;
    std::vector<std::pair<std::string, std::string>> other_tokens = {};  // "pad_token" and so on
  };
  // Reads a GGUF file, which `model` is or means, or a Hugging Face folder. A file has
  // `tokenizer.chat_template`, the same with ".tool_use", and the tokens that begin and end texts.
  // In a folder the template of conversations is chat_template.jinja, else
  // `chat_template` of tokenizer_config.json (of a list the one named default), else that of
  // chat_template.json. The one for tools: tool_use.jinja in additional_chat_templates, else the
  // one named tool_use of the list. Tokens: of tokenizer_config.json, else special_tokens_map.json.
  static absl::StatusOr<Source> ReadSource(const std::string& model);

  // ReadSource, then Parse. Errors: those of the files, and Parse's.
  static absl::StatusOr<ChatTemplate> Load(const std::string& model);
  // INVALID_ARGUMENT or UNIMPLEMENTED, naming `chat_template` and the line, for a text that is not
  // a template.
  static absl::StatusOr<ChatTemplate> Parse(const Source& source);
  static absl::StatusOr<ChatTemplate> Parse(std::string_view jinja, std::string_view bos_token,
                                            std::string_view eos_token);

  // The whole prompt. INVALID_ARGUMENT naming `messages`, or a part of them, for what the template
  // refuses or cannot do, and for what goes beyond jinja::Limits.
  absl::StatusOr<std::vector<MarkedText>> Render(const ChatInput& input) const;

  // Whether the model has no template of its own.
  bool is_plain() const;
  // Whether the template writes the name of a message of this role: system, user or assistant. True
  // of other roles, and where a message with a name could not be tried.
  bool WritesNameOf(std::string_view role) const;
  // How the template writes calls of tools; nothing if it does not write them. Render takes
  // messages as they are; InCallStyle changes them.
  const std::optional<CallStyle>& call_style() const { return call_style_; }
  // Whether a template of the model's own contains `text`.
  bool Mentions(std::string_view text) const;
  // Whether the template reads the functions that a model may call (see generic_tools.h).
  bool HasPlaceForTools() const;
  // Whether the template writes what a system message in front says.
  bool HasPlaceForSystem() const { return has_place_for_system_; }
  // "jinja" or "plain".
  std::string_view name() const;
  // The text that the template writes after an answer: the token that ends it, and perhaps more.
  // Empty if it writes nothing.
  const std::string& answer_end() const { return answer_end_; }

 private:
  struct Programs;
  absl::StatusOr<std::vector<MarkedText>> Render(const ChatInput& input,
                                                 const jinja::Limits& limits) const;
  std::optional<CallStyle> FindCallStyle() const;
  // Whether the template writes the probe that is somewhere in this message; nothing if it refuses
  // the message.
  std::optional<bool> WritesProbe(const JsonValue& message) const;
  static absl::StatusOr<Source> ReadGgufSource(const std::string& path);

  std::shared_ptr<const Programs> programs_;
  std::string answer_end_;
  std::vector<std::string> unnamed_roles_;  // whose messages' names it does not write
  std::optional<CallStyle> call_style_;
  bool has_place_for_system_ = false;
};

struct ChatMessage {
  std::string role;  // "system", "user" or "assistant"
  std::string content;
};
// A conversation without anything else, to be answered.
ChatInput ChatInputOf(absl::Span<const ChatMessage> messages, absl::Time now);

// The tokens of a conversation's prompt, as RenderChat (generic_tools.h) writes it. In what
// messages say special tokens do not count. Errors: RenderChat's, and INVALID_ARGUMENT naming
// `messages` for text that is not UTF-8, or none at all.
absl::StatusOr<std::vector<TokenId>> EncodeChat(const ChatTemplate& chat,
                                                const Tokenizer& tokenizer, const ChatInput& input);

// The token with which the template ends an answer, for Request::stop_tokens; none if it ends
// answers without a token of their own. The model's own list of end tokens may lack it.
std::vector<TokenId> EndTokenIds(const ChatTemplate& chat, const Tokenizer& tokenizer);

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_CHAT_TEMPLATE_H_
