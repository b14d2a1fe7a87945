#include "tools/prompt_file.h"

#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/json/json_text.h"
#include "base/status_macros.h"
#include "tandem/json_value.h"

namespace tandem {
namespace {

bool IsBlank(const absl::StatusOr<std::string>& line) {
  return line.ok() && absl::StripAsciiWhitespace(*line).empty();
}

}  // namespace

absl::StatusOr<Prompt> ParsePromptLine(absl::string_view line, const std::string& where) {
  const auto wrong = [&](absl::string_view field, const SortedJson& found,
                         absl::string_view allowed) {
    return absl::InvalidArgumentError(
        absl::StrCat(where, ": ", field, "found ", Shown(found), ", allowed: ", allowed));
  };
  ASSIGN_OR_RETURN(const SortedJson json, ParseJson(line, where));
  if (!json.is_object() || json.contains("prompt") == json.contains("prompt_ids")) {
    return wrong("", json, "an object with one of \"prompt\" and \"prompt_ids\"");
  }
  Prompt prompt;
  if (json.contains("prompt")) {
    const SortedJson& text = json["prompt"];
    if (!text.is_string() || text.empty() || IsText(text, "")) {
      return wrong("prompt: ", text, "a string that is not empty");
    }
    prompt.text = text.get<std::string>();
    return prompt;
  }
  const SortedJson& ids = json["prompt_ids"];
  if (!ids.is_array() || ids.empty()) return wrong("prompt_ids: ", ids, "a list of token ids");
  for (const SortedJson& id : ids) {
    const auto number = AsIntegerWithin(id, 0, std::numeric_limits<TokenId>::max());
    if (!number.has_value()) return wrong("prompt_ids: ", id, "token ids");
    prompt.ids.push_back(static_cast<TokenId>(*number));
  }
  return prompt;
}

bool PromptReader::HasNext() {
  while (!ahead_.has_value()) {
    if (!input_.HasNextLine()) return false;
    ahead_ = input_.NextLine();
    if (!ahead_.has_value()) return true;  // the end of the file
    if (IsBlank(*ahead_)) ahead_.reset();
  }
  return true;
}

std::optional<absl::StatusOr<Prompt>> PromptReader::Next() {
  std::optional<absl::StatusOr<std::string>> line = std::exchange(ahead_, std::nullopt);
  if (!line.has_value()) line = input_.NextLine();
  while (line.has_value() && IsBlank(*line)) line = input_.NextLine();
  if (!line.has_value()) return std::nullopt;
  if (!line->ok()) return line->status();
  return ParsePromptLine(**line, input_.where());
}

absl::StatusOr<std::vector<Prompt>> ReadPromptFile(const std::string& path) {
  ASSIGN_OR_RETURN(TextInput input, TextInput::Open(path));
  PromptReader reader(std::move(input));
  std::vector<Prompt> prompts;
  while (std::optional<absl::StatusOr<Prompt>> prompt = reader.Next()) {
    RETURN_IF_ERROR(prompt->status());
    prompts.push_back(**std::move(prompt));
  }
  if (prompts.empty()) return absl::InvalidArgumentError(absl::StrCat(path, ": has no prompts"));
  return prompts;
}

}  // namespace tandem
