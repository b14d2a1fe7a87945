#include "model/chat_template.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/field_error.h"
#include "base/mapped_file.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "model/formats/gguf.h"
#include "model/formats/json_text.h"
#include "model/tokenizer/gguf_tokenizer.h"
#include "model/tokenizer/json_fields.h"
#include "model/tokenizer/unicode.h"
#include "nlohmann/json.hpp"

namespace tandem {
namespace {

using Json = nlohmann::json;
using Parts = std::vector<ChatPart>;

// What Llama 3.1 says where nothing tells it the day.
constexpr char kLlama3Date[] = "26 Jul 2024";

bool Has(const std::string& text, std::string_view what) {
  return text.find(what) != std::string::npos;
}

void AddOwn(std::string_view text, Parts* parts) {
  if (!text.empty()) parts->push_back({std::string(text), SpecialTokens::kParse});
}
void AddWords(std::string_view text, Parts* parts) {
  if (!text.empty()) parts->push_back({std::string(text), SpecialTokens::kPlain});
}

// Without the white space around it, as Unicode has it.
std::string_view Trimmed(std::string_view text) {
  size_t begin = 0;
  size_t end = 0;  // behind the last character that is no space
  bool is_leading = true;
  for (size_t at = 0; at < text.size();) {
    const Utf8Prefix next = ReadUtf8(text.substr(at));
    const bool is_space =
        next.kind == Utf8Prefix::Kind::kCharacter && IsWhiteSpace(next.code_point);
    if (is_leading && !is_space) begin = at;
    if (!is_space) is_leading = false;
    at += next.size;
    if (!is_space) end = at;
  }
  return is_leading ? std::string_view() : text.substr(begin, end - begin);
}

std::string_view WithoutLines(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of('\n'), text.size()));
}

// Cuts an answer behind its last "</think>" and returns what stands between the first such and the
// "<think>" before it; both without empty lines. Without "</think>" there is nothing to cut.
std::string_view TakeThoughts(std::string_view* words) {
  constexpr std::string_view kBegin = "<think>";
  constexpr std::string_view kEnd = "</think>";
  const size_t end = words->find(kEnd);
  if (end == words->npos) return "";
  std::string_view thoughts = words->substr(0, end);
  thoughts = thoughts.substr(0, thoughts.find_last_not_of('\n') + 1);
  if (const size_t begin = thoughts.rfind(kBegin); begin != thoughts.npos) {
    thoughts.remove_prefix(begin + kBegin.size());
  }
  *words = WithoutLines(words->substr(words->rfind(kEnd) + kEnd.size()));
  return WithoutLines(thoughts);
}

// What stands between `before` and `after`, the first time that it is neither empty nor holds a
// quote or a brace: a literal of the template. Empty if there is none.
std::string LiteralBetween(const std::string& text, std::string_view before,
                           std::string_view after) {
  for (size_t at = text.find(before); at != std::string::npos; at = text.find(before, at + 1)) {
    const size_t begin = at + before.size();
    const size_t end = text.find(after, begin);
    if (end == std::string::npos) break;
    std::string literal = text.substr(begin, end - begin);
    if (!literal.empty() && literal.find_first_of("'{}") == std::string::npos) return literal;
  }
  return "";
}

absl::Status Unknown(std::string_view why) {
  return absl::UnimplementedError(absl::StrCat("chat_template: is of no known family (", View(why),
                                               "), allowed: those of ChatML, Llama 2, Llama 3, "
                                               "Mistral and Zephyr; prompts can be completed"));
}

absl::Status WrongRole(size_t index, const std::string& role, std::string_view allowed) {
  return FieldError(absl::StrCat("messages[", index, "].role"),
                    absl::StrCat(Quoted(role), " is not ", View(allowed)));
}

// Roles that every template takes: one system message first, then question and answer in turns.
absl::Status CheckTurns(absl::Span<const ChatMessage> messages, bool has_system) {
  const size_t first = messages[0].role == "system" ? 1 : 0;
  if (first == 1 && !has_system) {
    return WrongRole(0, "system", "taken by the model's chat template, which has no such place");
  }
  if (messages.size() == first) {
    return FieldError("messages", "hold no message of role user");
  }
  for (size_t i = first; i < messages.size(); ++i) {
    const char* expected = (i - first) % 2 == 0 ? "user" : "assistant";
    if (messages[i].role == expected) continue;
    return WrongRole(i, messages[i].role,
                     absl::StrCat("what the model's chat template has here, ", expected));
  }
  return absl::OkStatus();
}

// A token of tokenizer_config.json: a string, an object with its content, or null.
absl::StatusOr<std::string> TokenText(const JsonField& config, std::string_view key) {
  ASSIGN_OR_RETURN(JsonField token, config.Member(key));
  if (token.value().is_object()) {
    ASSIGN_OR_RETURN(token, token.Member("content"));
  }
  if (token.is_null()) return "";
  return token.String();
}

// The member `chat_template`: a string, or a list of named ones, of which "default" counts.
absl::StatusOr<std::string> TemplateText(const JsonField& config) {
  ASSIGN_OR_RETURN(const JsonField field, config.Member("chat_template"));
  if (field.is_null()) return "";
  if (!field.value().is_array()) return field.String();
  for (size_t i = 0; i < field.value().size(); ++i) {
    ASSIGN_OR_RETURN(const JsonField entry, field.Element(i));
    ASSIGN_OR_RETURN(const JsonField name, entry.Member("name"));
    if (!name.Is("default")) continue;
    ASSIGN_OR_RETURN(const JsonField text, entry.Member("template"));
    return text.String();
  }
  return field.Error("has no template named default");
}

}  // namespace

absl::StatusOr<ChatTemplate> ChatTemplate::Load(const std::string& model) {
  ASSIGN_OR_RETURN(const std::string gguf, GgufIn(model));
  if (!gguf.empty()) return LoadGguf(gguf);
  ASSIGN_OR_RETURN(const Source source, ReadSource(model));
  return Parse(source.jinja, source.bos_token, source.eos_token);
}

absl::StatusOr<ChatTemplate::Source> ChatTemplate::ReadSource(const std::string& folder) {
  const std::filesystem::path path(folder);
  const std::string config_path = (path / "tokenizer_config.json").string();
  Source source;
  const absl::StatusOr<std::string> config = ReadFile(config_path);
  if (config.ok()) {
    ASSIGN_OR_RETURN(const JsonDocument json, ParseJsonDocument(*config, config_path));
    const JsonField root(&*json, config_path);
    ASSIGN_OR_RETURN(source.jinja, TemplateText(root));
    ASSIGN_OR_RETURN(source.bos_token, TokenText(root, "bos_token"));
    ASSIGN_OR_RETURN(source.eos_token, TokenText(root, "eos_token"));
  } else if (!absl::IsNotFound(config.status())) {
    return config.status();
  }
  const absl::StatusOr<std::string> file = ReadFile((path / "chat_template.jinja").string());
  if (file.ok()) {
    source.jinja = *file;
  } else if (!absl::IsNotFound(file.status())) {
    return file.status();
  }
  return source;
}

absl::StatusOr<ChatTemplate> ChatTemplate::LoadGguf(const std::string& path) {
  constexpr char kTemplate[] = "tokenizer.chat_template";
  ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file, GgufFile::Open(path));
  ASSIGN_OR_RETURN(const GgufTextEnds ends, ReadGgufTextEnds(*file));
  std::string_view jinja;
  if (file->Has(kTemplate)) {
    ASSIGN_OR_RETURN(jinja, file->GetString(kTemplate));
    if (FindInvalidUtf8(jinja) != std::string_view::npos) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": key ", Quoted(kTemplate), ": found bytes that are not UTF-8, allowed: a text"));
    }
  }
  return Parse(jinja, ends.bos, ends.eos);
}

absl::StatusOr<ChatTemplate> ChatTemplate::Parse(std::string_view jinja, std::string_view bos_token,
                                                 std::string_view eos_token) {
  ChatTemplate result;
  result.bos_ = bos_token;
  result.eos_ = eos_token;
  if (Trimmed(jinja).empty()) return result;
  // One spelling of what means the same.
  const std::string text = absl::StrReplaceAll(View(jinja), {{"\\n", "\n"}, {"\"", "'"}});
  const std::string dense = absl::StrReplaceAll(text, {{" ", ""}});
  result.trims_ = Has(dense, "|trim") || Has(dense, ".strip()");
  result.before_ = Has(text, "bos_token") ? result.bos_ : "";
  if (Has(text, "<|start_header_id|>") && Has(text, "<|eot_id|>")) {
    result.family_ = Family::kLlama3;
    result.tells_date_ = Has(text, "Cutting Knowledge Date: December 2023");
    result.asks_date_ = Has(text, "strftime_now");
  } else if (Has(text, "<|im_start|>") && Has(text, "<|im_end|>")) {
    RETURN_IF_ERROR(result.ParseChatMl(text));
  } else if (Has(text, "[INST]") && Has(text, "<<SYS>>")) {
    if (Has(dense, "not'<<SYS>>'in")) return Unknown("Llama 2 with a system message of its own");
    result.family_ = Family::kLlama2;
  } else if (Has(text, "[INST]") && Has(text, "[/INST]")) {
    RETURN_IF_ERROR(result.ParseMistral(text));
  } else if (Has(dense, "'<|user|>\n'+message['content']+eos_token")) {
    result.family_ = Family::kZephyr;
    const bool has_lines = Has(dense, "eos_token}}\n") || Has(dense, "eos_token+'\n'");
    result.message_end_ = has_lines ? "\n" : "";
    const bool ends_line = Has(dense, "'<|assistant|>'}}\n") || Has(dense, "{{'<|assistant|>\n'}}");
    result.prompt_end_ = ends_line ? "\n" : "";
  } else {
    return Unknown(Quoted(text));
  }
  return result;
}

absl::Status ChatTemplate::ParseChatMl(const std::string& jinja) {
  if (Has(jinja, "<|im_sep|>")) return Unknown("ChatML with <|im_sep|>");
  if (Has(jinja, "strftime_now")) return Unknown("ChatML that tells the day");
  family_ = Family::kChatMl;
  drops_thoughts_ = Has(jinja, "</think>");
  default_system_ = LiteralBetween(jinja, "<|im_start|>system\n", "<|im_end|>");
  if (default_system_.empty()) {
    default_system_ = LiteralBetween(jinja, "system_message = '", "'");
  }
  return absl::OkStatus();
}

absl::Status ChatTemplate::ParseMistral(const std::string& jinja) {
  family_ = Family::kMistral;
  const std::string dense = absl::StrReplaceAll(
      jinja, {{" + ", "+"}, {" +", "+"}, {"+ ", "+"}, {" }}", "}}"}, {" | ", "|"}});
  const std::pair<const char*, const char*> starts[] = {
      {"' [INST] '", " [INST] "}, {"'[INST] '", "[INST] "}, {"'[INST]'", "[INST]"}};
  for (const auto& [literal, text] : starts) {
    if (question_start_.empty() && Has(dense, literal)) question_start_ = text;
  }
  if (Has(dense, "' [/INST]'")) {
    question_end_ = " [/INST]";
  } else if (Has(dense, "'[/INST]'")) {
    question_end_ = "[/INST]";
  }
  if (question_start_.empty() || question_end_.empty() || !Has(dense, "eos_token")) {
    return Unknown("Mistral with other brackets");
  }
  answer_start_ = Has(dense, "' '+message['content']") ? " " : "";
  answer_end_ = absl::StrCat(eos_, Has(dense, "eos_token+' '") ? " " : "");
  if (Has(dense, "loop.last and system_message")) {
    system_place_ = SystemPlace::kLast;
  } else if (Has(dense, "loop.first and system_message")) {
    system_place_ = SystemPlace::kFirst;
  } else if (Has(dense, "system_message")) {
    return Unknown("Mistral with a system message elsewhere");
  }
  return absl::OkStatus();
}

std::string_view ChatTemplate::name() const {
  switch (family_) {
    case Family::kPlain:
      return "plain";
    case Family::kChatMl:
      return "ChatML";
    case Family::kLlama2:
      return "Llama 2";
    case Family::kLlama3:
      return "Llama 3";
    case Family::kMistral:
      return "Mistral";
    case Family::kZephyr:
      return "Zephyr";
  }
  return "";
}

std::vector<std::string> ChatTemplate::EndTokens() const {
  switch (family_) {
    case Family::kPlain:
      return {};
    case Family::kChatMl:
      return {"<|im_end|>"};
    case Family::kLlama3:
      return {"<|eot_id|>"};
    default:
      break;
  }
  return eos_.empty() ? std::vector<std::string>() : std::vector<std::string>{eos_};
}

absl::StatusOr<Parts> ChatTemplate::Render(absl::Span<const ChatMessage> messages,
                                           std::string_view date) const {
  if (messages.empty()) return FieldError("messages", "is empty");
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string& role = messages[i].role;
    if (role != "system" && role != "user" && role != "assistant") {
      return WrongRole(i, role, "one of system, user, assistant");
    }
  }
  switch (family_) {
    case Family::kPlain:
      return RenderPlain(messages);
    case Family::kChatMl:
      return RenderChatMl(messages);
    case Family::kLlama3:
      return RenderLlama3(messages, date);
    case Family::kZephyr:
      return RenderZephyr(messages);
    case Family::kLlama2:
      RETURN_IF_ERROR(CheckTurns(messages, /*has_system=*/true));
      return RenderLlama2(messages);
    case Family::kMistral:
      RETURN_IF_ERROR(CheckTurns(messages, system_place_ != SystemPlace::kNone));
      return RenderMistral(messages);
  }
  return Parts();
}

Parts ChatTemplate::RenderPlain(absl::Span<const ChatMessage> messages) const {
  Parts parts;
  for (const ChatMessage& message : messages) {
    // An answer goes on where the model did, so that the next prompt begins with what it read.
    if (!parts.empty() && message.role != "assistant") AddOwn("\n", &parts);
    AddWords(message.content, &parts);
  }
  return parts;
}

Parts ChatTemplate::RenderChatMl(absl::Span<const ChatMessage> messages) const {
  Parts parts;
  AddOwn(before_, &parts);
  if (messages[0].role != "system" && !default_system_.empty()) {
    AddOwn(absl::StrCat("<|im_start|>system\n", default_system_, "<|im_end|>\n"), &parts);
  }
  size_t last_question = messages.size();
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].role == "user") last_question = i;
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string& role = messages[i].role;
    std::string_view words = messages[i].content;
    AddOwn(absl::StrCat("<|im_start|>", role, "\n"), &parts);
    if (drops_thoughts_ && role == "assistant") {
      const std::string_view thoughts = TakeThoughts(&words);
      // Answers behind the last question keep theirs; the very last has a place for them in any
      // case.
      if (i > last_question && (i + 1 == messages.size() || !thoughts.empty())) {
        AddOwn("<think>\n", &parts);
        AddWords(thoughts, &parts);
        AddOwn("\n</think>\n\n", &parts);
        words = WithoutLines(words);
      }
    }
    AddWords(trims_ ? Trimmed(words) : words, &parts);
    AddOwn("<|im_end|>\n", &parts);
  }
  AddOwn("<|im_start|>assistant\n", &parts);
  return parts;
}

Parts ChatTemplate::RenderLlama2(absl::Span<const ChatMessage> messages) const {
  Parts parts;
  const bool has_system = messages[0].role == "system";
  for (size_t i = has_system ? 1 : 0; i < messages.size(); ++i) {
    const std::string_view words = Trimmed(messages[i].content);
    if (messages[i].role == "assistant") {
      AddOwn(" ", &parts);
      AddWords(words, &parts);
      AddOwn(absl::StrCat(" ", eos_), &parts);
      continue;
    }
    AddOwn(absl::StrCat(bos_, "[INST] "), &parts);
    if (i == 1 && has_system) {
      AddOwn("<<SYS>>\n", &parts);
      AddWords(messages[0].content, &parts);
      AddOwn(words.empty() ? "\n<</SYS>>" : "\n<</SYS>>\n\n", &parts);
    }
    AddWords(words, &parts);
    AddOwn(" [/INST]", &parts);
  }
  return parts;
}

Parts ChatTemplate::RenderLlama3(absl::Span<const ChatMessage> messages,
                                 std::string_view date) const {
  Parts parts;
  AddOwn(before_, &parts);
  const auto add_header = [&parts](const std::string& role) {
    AddOwn(absl::StrCat("<|start_header_id|>", role, "<|end_header_id|>\n\n"), &parts);
  };
  if (tells_date_) {
    add_header("system");
    AddOwn(absl::StrCat("Cutting Knowledge Date: December 2023\nToday Date: ",
                        asks_date_ ? View(date) : kLlama3Date, "\n\n"),
           &parts);
    if (messages[0].role == "system") {
      AddWords(Trimmed(messages[0].content), &parts);
      messages.remove_prefix(1);
    }
    AddOwn("<|eot_id|>", &parts);
  }
  for (const ChatMessage& message : messages) {
    add_header(message.role);
    AddWords(trims_ ? Trimmed(message.content) : message.content, &parts);
    AddOwn("<|eot_id|>", &parts);
  }
  add_header("assistant");
  return parts;
}

Parts ChatTemplate::RenderMistral(absl::Span<const ChatMessage> messages) const {
  Parts parts;
  AddOwn(before_, &parts);
  const bool has_system = messages[0].role == "system";
  const size_t first = has_system ? 1 : 0;
  const size_t bearer = system_place_ == SystemPlace::kLast ? messages.size() - 1 : first;
  for (size_t i = first; i < messages.size(); ++i) {
    const std::string_view words = messages[i].content;
    if (messages[i].role == "assistant") {
      AddOwn(answer_start_, &parts);
      AddWords(trims_ ? Trimmed(words) : words, &parts);
      AddOwn(answer_end_, &parts);
      continue;
    }
    AddOwn(question_start_, &parts);
    if (has_system && i == bearer) {
      AddWords(messages[0].content, &parts);
      AddOwn("\n\n", &parts);
    }
    AddWords(words, &parts);
    AddOwn(question_end_, &parts);
  }
  return parts;
}

Parts ChatTemplate::RenderZephyr(absl::Span<const ChatMessage> messages) const {
  Parts parts;
  AddOwn(before_, &parts);
  for (const ChatMessage& message : messages) {
    AddOwn(absl::StrCat("<|", message.role, "|>\n"), &parts);
    AddWords(trims_ ? Trimmed(message.content) : message.content, &parts);
    AddOwn(absl::StrCat(eos_, message_end_), &parts);
  }
  AddOwn(absl::StrCat("<|assistant|>", prompt_end_), &parts);
  return parts;
}

absl::StatusOr<std::vector<TokenId>> EncodeChat(const ChatTemplate& chat,
                                                const Tokenizer& tokenizer,
                                                absl::Span<const ChatMessage> messages,
                                                std::string_view date) {
  ASSIGN_OR_RETURN(const std::vector<ChatPart> parts, chat.Render(messages, date));
  std::vector<MarkedText> marked;
  for (const ChatPart& part : parts) marked.push_back({part.text, part.special});
  absl::StatusOr<std::vector<TokenId>> ids = tokenizer.EncodeMarked(marked);
  if (!ids.ok()) return WithField(ids.status(), "messages");
  // Templates write their own first token.
  if (chat.family() == ChatTemplate::Family::kPlain) ids = tokenizer.WithTemplate(*std::move(ids));
  if (ids->empty()) return FieldError("messages", "are empty");
  return ids;
}

std::vector<TokenId> EndTokenIds(const ChatTemplate& chat, const Tokenizer& tokenizer) {
  std::vector<TokenId> ids;
  for (const std::string& token : chat.EndTokens()) {
    const TokenId id = tokenizer.IdOf(token);
    if (id >= 0) ids.push_back(id);
  }
  return ids;
}

}  // namespace tandem
