#include "server/api/token_endpoints.h"

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/hash_map.h"
#include "base/json/json_text.h"
#include "base/json/json_writer.h"
#include "base/json/request_fields.h"
#include "base/mapped_file.h"
#include "base/status_macros.h"
#include "model/checkpoint/gguf.h"
#include "server/api/chat_fields.h"
#include "server/api/field_groups.h"
#include "tandem/field_error.h"
#include "tandem/json_value.h"

namespace tandem {
namespace {

using Json = JsonValue;

// Returns the tokens of a text prompt.
absl::StatusOr<std::vector<TokenId>> TokensOfPrompt(RequestFields* fields,
                                                    const ServedModel& model) {
  bool adds_special = true;
  fields->Read("add_special_tokens", &adds_special);
  std::string special = "parse";
  fields->Read("special", &special);
  if (special != "parse" && special != "plain") {
    fields->FailNot("special", special, "parse or plain");
  }
  const bool has_prompt = fields->Find("prompt") != nullptr;
  std::string text;
  fields->Read("prompt", &text);
  RefuseFieldsOfOthers(kOnPrompt, fields);
  RETURN_IF_ERROR(fields->Finish());
  if (!has_prompt) return MissingField("prompt", "a string");
  absl::StatusOr<std::vector<TokenId>> ids = model.tokenizer->Encode(
      text, special == "parse" ? SpecialTokens::kParse : SpecialTokens::kPlain);
  if (!ids.ok()) return WithField(ids.status(), "prompt");
  return adds_special ? model.tokenizer->WithTemplate(*std::move(ids)) : *std::move(ids);
}

absl::StatusOr<std::vector<TokenId>> TokensOfChat(RequestFields* fields, const ServedModel& model,
                                                  absl::Time now, bool* has_generic_tools) {
  ChatInput chat;
  chat.now = now;
  ReadChatInput(fields, &chat);
  IgnoreUnwrittenNames("messages", model, fields);
  ReadToolsOfTemplate(model, fields, &chat);
  RefuseFieldsOfOthers(kOnPrompt, fields);
  RETURN_IF_ERROR(fields->Finish());
  *has_generic_tools = HasGenericTools(chat, model);
  return EncodeChatInput(chat, model);
}

// Writes the text of each token by itself. Decodes each distinct token only once.
void WriteTexts(const std::vector<TokenId>& ids, const Tokenizer& tokenizer, JsonWriter* writer) {
  HashMap<TokenId, std::string> texts;
  writer->BeginArray();
  for (const TokenId id : ids) {
    const auto [text, is_new] = texts.try_emplace(id);
    if (is_new) text->second = tokenizer.Decode({id});
    writer->String(text->second);
  }
  writer->EndArray();
}

// Reads the object in tokenizer_config.json. Returns an empty one if there is no such file, as with
// GGUF files.
absl::StatusOr<Json> ReadConfig(const std::string& model) {
  ASSIGN_OR_RETURN(const std::string gguf, GgufIn(model));
  if (!gguf.empty()) return Json::object();
  const std::string path = (std::filesystem::path(model) / "tokenizer_config.json").string();
  const absl::StatusOr<std::string> contents = ReadFile(path);
  if (absl::IsNotFound(contents.status())) return Json::object();
  RETURN_IF_ERROR(contents.status());
  return ParseJsonValue(*contents, path);
}

Json TextOrNull(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

}  // namespace

absl::StatusOr<TokenizeAnswer> TokenizeBody(absl::string_view body, const ServedModel& model,
                                            absl::Time now, IgnoredFields* ignored) {
  ASSIGN_OR_RETURN(const Json json, ParseJsonValue(body, "body"));
  RequestFields fields(&json, "", model.is_strict ? nullptr : ignored);
  ReadModelName(&fields, model);
  bool returns_texts = true;
  fields.Read("return_token_strs", &returns_texts);
  const bool is_chat = json.is_object() && json.contains("messages") && !json["messages"].is_null();
  TokenizeAnswer answer;
  std::vector<TokenId> ids;
  if (is_chat) {
    ASSIGN_OR_RETURN(ids, TokensOfChat(&fields, model, now, &answer.has_generic_tools));
  } else {
    ASSIGN_OR_RETURN(ids, TokensOfPrompt(&fields, model));
  }
  JsonWriter writer(&answer.body);
  writer.BeginObject().Key("tokens").BeginArray();
  for (const TokenId id : ids) writer.Integer(id);
  writer.EndArray().Key("token_strs");
  if (returns_texts) {
    WriteTexts(ids, *model.tokenizer, &writer);
  } else {
    writer.Null();
  }
  writer.Key("count").Integer(static_cast<int64_t>(ids.size()));
  writer.Key("max_model_len").Integer(model.MaxLength()).EndObject();
  return answer;
}

std::string RenderedBody(const ApiRequest& request) {
  std::string body;
  JsonWriter writer(&body);
  if (!request.is_chat) writer.BeginArray();
  for (const std::vector<TokenId>& prompt : request.prompts) {
    writer.BeginObject().Key("token_ids").BeginArray();
    for (const TokenId id : prompt) writer.Integer(id);
    writer.EndArray().EndObject();
  }
  if (!request.is_chat) writer.EndArray();
  return body;
}

absl::StatusOr<std::string> DetokenizeBody(absl::string_view body, const ServedModel& model,
                                           IgnoredFields* ignored) {
  ASSIGN_OR_RETURN(const Json json, ParseJsonValue(body, "body"));
  RequestFields fields(&json, "", model.is_strict ? nullptr : ignored);
  ReadModelName(&fields, model);
  const Json* tokens = fields.Find("tokens");
  RefuseFieldsOfOthers(kOnDecoding, &fields);
  RETURN_IF_ERROR(fields.Finish());
  if (tokens == nullptr) return MissingField("tokens", "a list of token ids");
  if (!tokens->is_array()) {
    return FieldError("tokens", absl::StrCat(Shown(*tokens), " is not a list of token ids"));
  }
  std::vector<TokenId> ids;
  for (const Json& token : *tokens) {
    const auto id = AsIntegerWithin(token, 0, model.tokenizer->vocab_size() - 1);
    if (!id.has_value()) {
      return FieldError("tokens", absl::StrCat(Shown(token), " is not a token id below ",
                                               model.tokenizer->vocab_size()));
    }
    ids.push_back(static_cast<TokenId>(*id));
  }
  std::string answer;
  JsonWriter(&answer).BeginObject().Key("prompt").String(model.tokenizer->Decode(ids)).EndObject();
  return answer;
}

absl::StatusOr<std::string> TokenizerInfo(const std::string& model,
                                          const ChatTemplate::Source& source,
                                          const Tokenizer& tokenizer, int max_length) {
  ASSIGN_OR_RETURN(Json info, ReadConfig(model));
  if (!info.contains("tokenizer_class")) info["tokenizer_class"] = "PreTrainedTokenizerFast";
  info["bos_token"] = TextOrNull(source.bos_token);
  info["eos_token"] = TextOrNull(source.eos_token);
  info["pad_token"] = nullptr;
  for (const auto& [name, text] : source.other_tokens) info[name] = text;
  info["chat_template"] = TextOrNull(source.jinja);
  const std::vector<TokenId> around = tokenizer.WithTemplate({});
  info["add_bos_token"] = !around.empty() && around.front() == tokenizer.IdOf(source.bos_token);
  info["model_max_length"] = max_length;
  return DumpJson(info);
}

}  // namespace tandem
