#include "server/api/tokenizer_info.h"

#include <filesystem>
#include <utility>
#include <vector>

#include "base/mapped_file.h"
#include "base/status_macros.h"
#include "checkpoint/gguf.h"
#include "json/json_text.h"
#include "tandem/json_value.h"

namespace tandem {
namespace {

using Json = JsonValue;

// The object in tokenizer_config.json; an empty one if there is no such file, as with GGUF files.
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
  return info.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tandem
