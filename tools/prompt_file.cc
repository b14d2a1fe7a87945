#include "tools/prompt_file.h"

#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/mapped_file.h"
#include "base/status_macros.h"
#include "model/formats/json_text.h"
#include "nlohmann/json.hpp"

namespace tandem {
namespace {

using Json = nlohmann::json;

absl::StatusOr<Prompt> ParseLine(absl::string_view line, const std::string& where) {
  const auto wrong = [&](absl::string_view field, const Json& found, absl::string_view allowed) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": ", field, "found ", Shown(found), ", allowed: ", allowed));
  };
  ASSIGN_OR_RETURN(const Json json, ParseJson(line, where));
  if (!json.is_object() || json.contains("prompt") == json.contains("prompt_ids")) {
    return wrong("", json, "an object with one of \"prompt\" and \"prompt_ids\"");
  }
  Prompt prompt;
  if (json.contains("prompt")) {
    const Json& text = json["prompt"];
    if (!text.is_string() || text.empty() || text == "") {
      return wrong("prompt: ", text, "a string that is not empty");
    }
    prompt.text = text.get<std::string>();
    return prompt;
  }
  const Json& ids = json["prompt_ids"];
  if (!ids.is_array() || ids.empty()) return wrong("prompt_ids: ", ids, "a list of token ids");
  for (const Json& id : ids) {
    const bool is_id = id.is_number_unsigned() &&
                       id.get<uint64_t>() <= uint64_t{std::numeric_limits<TokenId>::max()};
    if (!is_id) return wrong("prompt_ids: ", id, "token ids");
    prompt.ids.push_back(id.get<TokenId>());
  }
  return prompt;
}

}  // namespace

absl::StatusOr<std::vector<Prompt>> ReadPromptFile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string contents, ReadFile(path));
  std::vector<Prompt> prompts;
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(contents, '\n')) {
    ++number;
    if (absl::StripAsciiWhitespace(line).empty()) continue;
    ASSIGN_OR_RETURN(Prompt prompt, ParseLine(line, absl::StrCat(path, ":", number)));
    prompts.push_back(std::move(prompt));
  }
  if (prompts.empty()) return absl::InvalidArgumentError(absl::StrCat(path, ": has no prompts"));
  return prompts;
}

}  // namespace tandem
