// Reads the chat templates and special tokens of model folders and GGUF files.
#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/json/json_fields.h"
#include "base/json/json_text.h"
#include "base/mapped_file.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "base/utf8.h"
#include "model/checkpoint/gguf.h"
#include "tandem/chat_template.h"
#include "tandem/json_value.h"
#include "text/gguf_tokenizer.h"

namespace tandem {
namespace {

constexpr std::array<const char*, 5> kOtherTokens = {"unk_token", "sep_token", "pad_token",
                                                     "cls_token", "mask_token"};
constexpr char kGgufTemplate[] = "tokenizer.chat_template";

// Returns the file's contents; nullopt if there is no such file.
absl::StatusOr<std::optional<std::string>> ReadIfThere(const std::filesystem::path& path) {
  absl::StatusOr<std::string> contents = ReadFile(path.string());
  if (contents.ok()) return *std::move(contents);
  if (absl::IsNotFound(contents.status())) return std::nullopt;
  return contents.status();
}

// Returns a JSON file's document; null if there is no such file.
absl::StatusOr<SortedJson> ReadJsonIfThere(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(const std::optional<std::string> contents, ReadIfThere(path));
  if (!contents.has_value()) return SortedJson();
  return ParseJson(*contents, path.string());
}

// Returns a token's text, which JSON has as a string, as an object with `content`, or as null for
// "".
absl::StatusOr<std::string> TokenText(const JsonField& config, std::string_view key) {
  ASSIGN_OR_RETURN(JsonField token, config.Member(key));
  if (token.value().is_object()) {
    ASSIGN_OR_RETURN(token, token.Member("content"));
  }
  if (token.is_null()) return "";
  return token.String();
}

// Reads the member `chat_template`: a string, or a list or an object of named templates.
absl::Status ReadTemplates(const JsonField& config, ChatTemplate::Source* source) {
  ASSIGN_OR_RETURN(const JsonField field, config.Member("chat_template"));
  if (field.is_null()) return absl::OkStatus();
  bool has_default = false;
  const auto take = [&](std::string_view name, const JsonField& text) -> absl::Status {
    has_default = has_default || name == "default";
    if (name == "default") {
      ASSIGN_OR_RETURN(source->jinja, text.String());
    } else if (name == "tool_use") {
      ASSIGN_OR_RETURN(source->tool_use, text.String());
    }
    return absl::OkStatus();
  };
  if (field.value().is_object()) {
    for (const auto& [name, text] : field.value().items()) {
      ASSIGN_OR_RETURN(const JsonField member, field.Member(name));
      RETURN_IF_ERROR(take(name, member));
    }
  } else if (field.value().is_array()) {
    for (size_t i = 0; i < field.value().size(); ++i) {
      ASSIGN_OR_RETURN(const JsonField entry, field.Element(i));
      ASSIGN_OR_RETURN(const JsonField name, entry.Member("name"));
      ASSIGN_OR_RETURN(const JsonField text, entry.Member("template"));
      const auto* const string = name.value().get_ptr<const std::string*>();
      RETURN_IF_ERROR(take(string == nullptr ? "" : *string, text));
    }
  } else {
    RETURN_IF_ERROR(take("default", field));
  }
  return has_default ? absl::OkStatus() : field.Error("has no template named default");
}

absl::Status ReadTokens(const std::filesystem::path& folder, const JsonField& config,
                        ChatTemplate::Source* source) {
  const std::filesystem::path path = folder / "special_tokens_map.json";
  ASSIGN_OR_RETURN(const SortedJson json, ReadJsonIfThere(path));
  const JsonField map(&json, path.string());
  const auto token = [&](const char* name) -> absl::StatusOr<std::string> {
    const bool is_in_config = !config.is_null() && config.value().contains(name);
    const JsonField& place = is_in_config ? config : map;
    if (place.is_null()) return "";
    return TokenText(place, name);
  };
  ASSIGN_OR_RETURN(source->bos_token, token("bos_token"));
  ASSIGN_OR_RETURN(source->eos_token, token("eos_token"));
  for (const char* name : kOtherTokens) {
    ASSIGN_OR_RETURN(std::string text, token(name));
    if (!text.empty()) source->other_tokens.emplace_back(name, std::move(text));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> GgufTemplate(const GgufFile& file, const std::string& path,
                                         const std::string& key) {
  if (!file.Has(key)) return "";
  ASSIGN_OR_RETURN(const std::string_view text, file.GetString(key));
  if (FindInvalidUtf8(text) == std::string_view::npos) return std::string(text);
  return absl::InvalidArgumentError(absl::StrCat(
      path, ": key ", Quoted(key), ": found bytes that are not UTF-8, allowed: a text"));
}

}  // namespace

absl::StatusOr<ChatTemplate::Source> ChatTemplate::ReadSource(const std::string& model) {
  ASSIGN_OR_RETURN(const std::string gguf, GgufIn(model));
  if (!gguf.empty()) return ReadGgufSource(gguf);
  const std::filesystem::path path(model);
  const std::string config_path = (path / "tokenizer_config.json").string();
  ASSIGN_OR_RETURN(const SortedJson config_json, ReadJsonIfThere(config_path));
  const JsonField config(&config_json, config_path);
  Source source;
  if (!config.is_null()) RETURN_IF_ERROR(ReadTemplates(config, &source));
  RETURN_IF_ERROR(ReadTokens(path, config, &source));
  ASSIGN_OR_RETURN(std::optional<std::string> file, ReadIfThere(path / "chat_template.jinja"));
  if (file.has_value()) source.jinja = *std::move(file);
  if (source.jinja.empty()) {
    const std::string old_path = (path / "chat_template.json").string();
    ASSIGN_OR_RETURN(const SortedJson json, ReadJsonIfThere(old_path));
    const JsonField root(&json, old_path);
    if (!root.is_null()) RETURN_IF_ERROR(ReadTemplates(root, &source));
  }
  ASSIGN_OR_RETURN(file, ReadIfThere(path / "additional_chat_templates" / "tool_use.jinja"));
  if (file.has_value()) source.tool_use = *std::move(file);
  return source;
}

absl::StatusOr<ChatTemplate> ChatTemplate::Load(const std::string& model) {
  ASSIGN_OR_RETURN(const Source source, ReadSource(model));
  return Parse(source);
}

absl::StatusOr<ChatTemplate::Source> ChatTemplate::ReadGgufSource(const std::string& path) {
  ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file, GgufFile::Open(path));
  ASSIGN_OR_RETURN(const GgufTextEnds ends, ReadGgufTextEnds(*file));
  Source source{.jinja = "", .tool_use = "", .bos_token = ends.bos, .eos_token = ends.eos};
  ASSIGN_OR_RETURN(source.jinja, GgufTemplate(*file, path, kGgufTemplate));
  ASSIGN_OR_RETURN(source.tool_use,
                   GgufTemplate(*file, path, absl::StrCat(kGgufTemplate, ".tool_use")));
  return source;
}

}  // namespace tandem
