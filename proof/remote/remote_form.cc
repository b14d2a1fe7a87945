#include "proof/remote/remote_form.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tandem/json_value.h"

namespace tandem {
namespace {

constexpr char kBlanks[] = " \t\r\n";

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
      if (part.empty()) next.push_back(std::min(text.find_first_not_of(kBlanks, at), text.size()));
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
  for (const std::vector<std::string>& part : form.parts) {
    const auto quote = [](std::string* out, const std::string& text) {
      absl::StrAppend(out, SortedJson(text).dump());
    };
    absl::StrAppend(&grammar, " (", absl::StrJoin(part, " | ", quote), ")");
  }
  return grammar;
}

std::vector<RemoteForm> ProofForms() {
  std::vector<std::string> numbers;
  for (int i = 0; i < 100; ++i) numbers.push_back(absl::StrCat(i));
  const std::vector<std::string> blanks;
  RemoteForm schema = {RemoteForm::Kind::kJsonSchema, "JSON schema", R"({"type": "object",
      "properties": {"color": {"enum": ["red", "green", "blue"]},
                     "count": {"type": "integer", "minimum": 0, "maximum": 99},
                     "done": {"type": "boolean"}},
      "required": ["color", "count", "done"], "additionalProperties": false})"};
  for (const std::vector<std::string>& part : std::vector<std::vector<std::string>>{
           {"{"}, {"\"color\""}, {":"}, {"\"red\"", "\"green\"", "\"blue\""}, {","}, {"\"count\""},
           {":"}, numbers, {","}, {"\"done\""}, {":"}, {"true", "false"}, {"}"}}) {
    schema.parts.push_back(blanks);
    schema.parts.push_back(part);
  }
  schema.parts.push_back(blanks);
  const std::vector<std::string> letters = Letters('a', 'f'), digits = Letters('0', '9');
  return {schema,
          {RemoteForm::Kind::kChoice, "enum", R"(["red", "reddish", "green", "dark blue"])",
           {{"red", "reddish", "green", "dark blue"}}},
          {RemoteForm::Kind::kRegex, "regex", R"("[a-f]{3}-[0-9]{2}")",
           {letters, letters, letters, {"-"}, digits, digits}}};
}

RemoteForm LawForm() {
  constexpr int kLetters = 12;
  RemoteForm form = {RemoteForm::Kind::kJsonSchema, "a schema",
                     absl::StrCat(R"({"type": "string", "pattern": "^[a-f]{)", kLetters, R"(}$"})"),
                     {{"\""}}};
  for (int i = 0; i < kLetters; ++i) form.parts.push_back(Letters('a', 'f'));
  form.parts.push_back({"\""});
  return form;
}

}  // namespace tandem
