#include "proof/remote/remote_form.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tandem/json_value.h"

namespace tandem {
namespace {

std::vector<std::string> Letters(char first, char last) {
  std::vector<std::string> letters;
  for (char letter = first; letter <= last; ++letter) letters.emplace_back(1, letter);
  return letters;
}

}  // namespace

FormMatch Match(const RemoteForm& form, absl::string_view text) {
  FormMatch match;
  std::vector<size_t> ends = {0};  // of the parts so far
  for (const std::vector<std::string>& part : form.parts) {
    std::vector<size_t> next;
    for (const size_t at : ends) {
      const absl::string_view rest = text.substr(at);
      if (part.empty()) {
        next.push_back(std::min(text.find_first_not_of(" \t\r\n", at), text.size()));
      }
      for (const std::string& option : part) {
        if (absl::StartsWith(rest, option)) {
          next.push_back(at + option.size());
        } else if (absl::StartsWith(option, rest)) {
          match.next += option[rest.size()];
        }
      }
    }
    ends = std::move(next);
  }
  match.is_complete = std::find(ends.begin(), ends.end(), text.size()) != ends.end();
  return match;
}

std::string GrammarOf(const RemoteForm& form) {
  std::string grammar = "root ::=";
  const auto quote = [](std::string* out, const std::string& x) { *out += SortedJson(x).dump(); };
  for (const std::vector<std::string>& part : form.parts) {
    absl::StrAppend(&grammar, " (", absl::StrJoin(part, " | ", quote), ")");
  }
  return grammar;
}

std::vector<RemoteForm> ProofForms() {
  std::string counts = "0";
  for (int i = 1; i < 100; ++i) absl::StrAppend(&counts, "|", i);
  RemoteForm schema = {RemoteForm::Kind::kJsonSchema, "JSON schema", R"({"type": "object",
      "properties": {"color": {"enum": ["red", "green", "blue"]},
                     "count": {"type": "integer", "minimum": 0, "maximum": 99},
                     "done": {"type": "boolean"}},
      "required": ["color", "count", "done"], "additionalProperties": false})"};
  const std::string parts = absl::StrCat(R"({ "color" : "red"|"green"|"blue" , "count" : )", counts,
                                         R"( , "done" : true|false })");
  for (const absl::string_view part : absl::StrSplit(parts, ' ')) {
    schema.parts.insert(schema.parts.end(), {{}, absl::StrSplit(part, '|')});
  }
  schema.parts.emplace_back();
  RemoteForm choice = {RemoteForm::Kind::kChoice, "enum", R"(["red", "reddish", "dark blue"])"};
  choice.parts = {{"red", "reddish", "dark blue"}};
  RemoteForm regex = {RemoteForm::Kind::kRegex, "regex", R"("[a-f]{3}-[0-9]{2}")"};
  const auto letters = Letters('a', 'f'), digits = Letters('0', '9');
  regex.parts = {letters, letters, letters, {"-"}, digits, digits};
  return {schema, choice, regex};
}

RemoteForm LawForm() {
  RemoteForm form = {RemoteForm::Kind::kJsonSchema, "a schema",
                     R"({"type": "string", "pattern": "^[a-f]{12}$"})"};
  form.parts.assign(14, Letters('a', 'f'));
  form.parts.front() = form.parts.back() = {"\""};
  return form;
}

}  // namespace tandem
