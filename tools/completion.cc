#include "tools/completion.h"

#include <algorithm>
#include <initializer_list>

#include "CLI/CLI.hpp"
#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/check.h"
#include "tandem/known_models.h"
#include "tools/command_line.h"
#include "tools/other_names.h"

namespace tandem {
namespace {

constexpr absl::string_view kModelOptions[] = {"--target", "--draft", "--tokenizer",
                                               "path",     "TARGET",  "DRAFT"};

constexpr char kBash[] = R"(# bash completion for tandem
_tandem() {
  local word words=("${COMP_WORDS[@]:1:COMP_CWORD}")
  COMPREPLY=()
  while IFS=$'\t' read -r word _; do
    if [[ $word == :files ]]; then
      compopt -o filenames 2>/dev/null
      mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "${words[-1]#=}")
    else
      COMPREPLY+=("$word")
    fi
  done < <(printf '%s\0' "${words[@]}" | "${COMP_WORDS[0]/#\~/$HOME}" complete 2>/dev/null)
}
complete -F _tandem tandem
)";

constexpr char kZsh[] = R"(#compdef tandem
# zsh completion for tandem
_tandem() {
  local line files=
  local -a found
  while IFS= read -r line; do
    if [[ $line == :files ]]; then
      files=1
    else
      found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
    fi
  done < <(printf '%s\0' "${(@Q)words[2,CURRENT]}" | ${~words[1]} complete 2>/dev/null)
  (( $#found )) && _describe -V tandem found
  if [[ -n $files ]]; then
    compset -P '*='
    _files
  fi
}
if [[ ${funcstack[1]-} == _tandem ]]; then
  _tandem "$@"
else
  compdef _tandem tandem
fi
)";

constexpr char kFish[] = R"(# fish completion for tandem
function __tandem_complete
    set -l before (commandline -opc)
    set -l current (commandline -ct)
    set -l program $before[1]
    set -e before[1]
    string join0 -- $before "$current" | $program complete 2>/dev/null | while read -l line
        if test "$line" = :files
            __fish_complete_path "$current"
        else
            echo $line
        end
    end
end
complete -c tandem -f -a '(__tandem_complete)'
)";

// The first sentence of a help.
std::string Brief(const std::string& help) {
  size_t end = help.size();
  for (const char* const mark : {". ", "; ", " ["}) end = std::min(end, help.find(mark));
  return help.substr(0, end);
}

class Finder {
 public:
  explicit Finder(std::string prefix) : prefix_(std::move(prefix)) {}

  void Add(const std::string& word, const std::string& help = "") {
    if (absl::StartsWith(word, prefix_)) found_.words.emplace_back(word, Brief(help));
  }

  // Adds the values of an option, or of a positional argument; each begins with `before`.
  void AddValues(const CLI::Option* option, const std::string& before = "") {
    for (const std::string& name : AllowedNames(option)) Add(before + name);
    const std::string name = option->get_name();
    if (absl::c_linear_search(kModelOptions, name)) {
      for (const KnownModel& model : KnownModels()) {
        Add(before + model.name, model.what);
        Add(absl::StrCat(before, model.draft), "a draft that comes with the program");
      }
      for (const char* const story : {kStoryPair.target, kStoryPair.draft}) {
        Add(absl::StrCat(before, story), "comes with the program");
      }
      found_.has_files = true;
    }
    const std::string type = option->get_type_name();
    found_.has_files |= name == "DIR" || type == "F" || absl::StartsWith(type, "F.") ||
                        absl::StartsWith(type, "F|") || type == "FILE" || type == "DIR" ||
                        type == "PATH";
  }

  void AddOptions(const CLI::App* command) {
    for (; command != nullptr; command = command->get_parent()) {
      for (const CLI::Option* option : command->get_options()) {
        for (const std::string& name : option->get_lnames()) {
          Add(absl::StrCat("--", name), option->get_description());
        }
      }
    }
  }

  void AddArguments(const CLI::App* command) {
    for (const CLI::App* each : command->get_subcommands(nullptr)) {
      if (!each->get_group().empty()) Add(each->get_name(), each->get_description());
    }
    for (const CLI::Option* option : command->get_options()) {
      if (option->get_positional()) AddValues(option);
    }
  }

  Completions Take() { return std::move(found_); }

 private:
  const std::string prefix_;
  Completions found_;
};

}  // namespace

std::vector<std::string> AllowedNames(const CLI::Option* option) {
  constexpr char kBefore[] = " is not one of ";
  try {
    // CheckOneOf and ValueOf list the names in their error for a text that is none of them.
    const std::string error = (*const_cast<CLI::Option*>(option)->get_validator(0))("?");
    const size_t at = error.find(kBefore);
    if (at == error.npos) return {};
    return absl::StrSplit(error.substr(at + sizeof(kBefore) - 1), ", ");
  } catch (const CLI::OptionNotFound&) {
    return {};  // It has no check.
  }
}

Completions CompletionsOf(const CLI::App* program, std::vector<std::string> words) {
  if (words.empty()) return {};
  std::string current = std::move(words.back());
  words.pop_back();
  if (current == "=") current.clear();
  words.erase(std::remove(words.begin(), words.end(), "="), words.end());
  const absl::StatusOr<TypedWords> typed = WordsOf(program, words);
  if (!typed.ok()) return {};
  const CLI::App* const command = typed->command;
  Finder finder(current);
  if (!typed->entries.empty()) {
    const OptionWords& last = typed->entries.back();
    const bool is_open = last.option != nullptr && last.words.size() == 1 &&
                         last.option->get_items_expected_min() > 0 &&
                         FindOption(command, last.words[0]) == last.option;
    if (is_open) {
      finder.AddValues(last.option);
      return finder.Take();
    }
  }
  const size_t equals = current.find('=');
  if (absl::StartsWith(current, "--") && equals != current.npos) {
    const absl::StatusOr<std::string> word = InOwnNames(command, current.substr(0, equals));
    const CLI::Option* const option = word.ok() ? FindOption(command, *word) : nullptr;
    if (option != nullptr) finder.AddValues(option, current.substr(0, equals + 1));
  } else if (absl::StartsWith(current, "-")) {
    finder.AddOptions(command);
  } else {
    finder.AddArguments(command);
  }
  return finder.Take();
}

std::string CompletionScript(const std::string& shell) {
  if (shell == "bash") return kBash;
  if (shell == "zsh") return kZsh;
  TANDEM_CHECK(shell == "fish");
  return kFish;
}

}  // namespace tandem
