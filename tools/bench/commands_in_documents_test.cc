// Every command line of README.md and docs/ parses: its command and options are known, and the
// values are of the right kind. A whole line, without words that stand for others, also passes its
// command's own check. Nothing is run, and no file that a line names is needed.
//
// A command line is `tandem ...`, `build/release/tandem ...`, `./dev run ...` or `./dev bench ...`,
// in code between backquotes or in a block of code, indented or fenced, that names no language or a
// shell: at the start of a command, after assignments. In it
// - a backslash at the end continues a line;
// - a word in capitals, such as N, DIR or F.txt, stands for any value;
// - `...` as an option's value stands for any value, and elsewhere for more words;
// - square brackets mark words that may be left out, and [options] for more words.
// Required options may be left out where words are, and between backquotes, where a line is only
// mentioned. COMMAND or `...` in place of a command stands for any: each option is one of some
// command.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/mapped_file.h"
#include "base/source_path_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/command_line.h"
#include "tools/other_names.h"
#include "tools/program.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Word {
  std::string text;
  bool is_quoted = false;
};
using Words = std::vector<Word>;

// Code of a document: a block, or a text between backquotes.
struct Code {
  int line = 0;  // of the document, from 1
  std::string text;
  bool is_block = false;
};

// Splits a script into commands as a shell does; comments, redirections and operators are left out.
class Shell {
 public:
  explicit Shell(absl::string_view script) : script_(script) {}

  std::vector<Words> Commands() {
    while (at_ < script_.size()) Step(script_[at_]);
    EndCommand();
    return std::move(commands_);
  }

 private:
  void Step(char c) {
    ++at_;
    if (c == '\\' && at_ < script_.size()) {
      if (script_[at_++] != '\n') Append(script_[at_ - 1]);
    } else if (c == '\'' || c == '"') {
      Append("");
      word_->is_quoted = true;
      const size_t end = std::min(script_.find(c, at_), script_.size());
      Append(script_.substr(at_, end - at_));
      at_ = end + 1;
    } else if (c == '#' && !word_.has_value()) {
      at_ = std::min(script_.find('\n', at_), script_.size());
    } else if (c == '<' || c == '>') {
      const bool has_number = word_.has_value() && absl::c_all_of(word_->text, absl::ascii_isdigit);
      if (has_number) word_.reset();
      EndWord();
      at_ = std::min(script_.find_first_not_of("<>& ", at_), script_.size());
      is_redirected_ = true;
    } else if (absl::StrContains("\n|&;()", c)) {
      EndCommand();
    } else if (absl::ascii_isspace(c)) {
      EndWord();
    } else {
      Append(absl::string_view(&c, 1));
    }
  }
  void Append(absl::string_view text) {
    if (!word_.has_value()) word_.emplace();
    absl::StrAppend(&word_->text, text);
  }
  void Append(char c) { Append(absl::string_view(&c, 1)); }
  void EndWord() {
    if (!word_.has_value()) return;
    if (!is_redirected_) words_.push_back(*std::move(word_));
    is_redirected_ = false;
    word_.reset();
  }
  void EndCommand() {
    EndWord();
    is_redirected_ = false;
    if (!words_.empty()) commands_.push_back(std::move(words_));
    words_.clear();
  }

  const absl::string_view script_;
  size_t at_ = 0;
  std::optional<Word> word_;
  bool is_redirected_ = false;  // the next word is a file
  Words words_;
  std::vector<Words> commands_;
};

// Adds the texts between backquotes in `prose`. They end with their paragraph.
void AddMentions(absl::string_view prose, std::vector<Code>* codes) {
  int line = 1;
  for (const absl::string_view paragraph : absl::StrSplit(prose, "\n\n")) {
    for (size_t at = paragraph.find('`'); at != paragraph.npos; at = paragraph.find('`', at)) {
      const size_t begin = std::min(paragraph.find_first_not_of('`', at), paragraph.size());
      const absl::string_view quotes = paragraph.substr(at, begin - at);
      const size_t end = paragraph.find(quotes, begin);
      if (end == paragraph.npos) break;
      const auto lines = absl::c_count(paragraph.substr(0, at), '\n');
      // A line break is a blank there.
      codes->push_back(
          {.line = line + static_cast<int>(lines),
           .text = absl::StrReplaceAll(paragraph.substr(begin, end - begin), {{"\n", " "}})});
      at = end + quotes.size();
    }
    line += static_cast<int>(absl::c_count(paragraph, '\n')) + 2;
  }
}

std::vector<Code> CodesOf(absl::string_view document) {
  const std::set<absl::string_view> shells = {"", "sh", "bash", "console", "shell"};
  std::vector<Code> codes;
  std::string prose;           // lines outside blocks, with empty lines in place of the others
  std::optional<Code> fenced;  // the open block
  std::optional<Code> indented;
  bool is_after_blank = true;
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(document, '\n')) {
    ++number;
    absl::string_view fence = absl::StripLeadingAsciiWhitespace(line);
    const bool is_fence = absl::ConsumePrefix(&fence, "```");
    const bool is_indented = !is_fence && !fenced.has_value() && absl::StartsWith(line, "    ") &&
                             (indented.has_value() || is_after_blank);
    if (is_indented) {
      if (!indented.has_value()) indented = Code{.line = number, .text = "", .is_block = true};
      absl::StrAppend(&indented->text, line, "\n");
    } else if (indented.has_value()) {
      codes.push_back(*indented);
      indented.reset();
    }
    const bool is_prose = !is_fence && !is_indented && !fenced.has_value();
    absl::StrAppend(&prose, is_prose ? line : "", "\n");
    if (is_fence && fenced.has_value()) {
      if (fenced->is_block) codes.push_back(*fenced);
      fenced.reset();
    } else if (is_fence) {
      fenced = Code{.line = number + 1, .text = "", .is_block = shells.contains(fence)};
    } else if (fenced.has_value()) {
      absl::StrAppend(&fenced->text, line, "\n");
    }
    is_after_blank = line.empty();
  }
  AddMentions(prose, &codes);
  return codes;
}

// N, DIR, F.txt, DRAFT_FOLDER.
bool StandsForAny(const Word& word) {
  if (word.is_quoted) return false;
  const absl::string_view name = word.text;
  const auto is_part = [](char c) {
    return absl::ascii_isupper(c) || absl::ascii_isdigit(c) || c == '_';
  };
  const absl::string_view stem = name.substr(0, name.find('.'));
  return name == "..." ||
         (!stem.empty() && absl::ascii_isupper(stem[0]) && absl::c_all_of(stem, is_part));
}

// Drops the words before the program's arguments: a prompt, assignments, the program. Returns false
// for another program.
bool ConsumeProgram(Words* words) {
  const auto is_before = [](const Word& word) {
    const std::set<absl::string_view> before = {"$", "exec", "sudo", "time", "nohup", "env"};
    const size_t equals = word.text.find('=');
    const absl::string_view name = absl::string_view(word.text).substr(0, equals);
    const bool is_assignment =
        equals != std::string::npos && !name.empty() &&
        absl::c_all_of(name, [](char c) { return c == '_' || absl::ascii_isalnum(c); });
    return before.contains(word.text) || is_assignment;
  };
  const auto program = absl::c_find_if_not(*words, is_before);
  words->erase(words->begin(), program);
  if (words->empty()) return false;
  const std::string name = (*words)[0].text;
  if (name == "tandem" || absl::EndsWith(name, "/tandem")) {
    words->erase(words->begin());
    return true;
  }
  if (name != "./dev" || words->size() < 2) return false;
  const std::string command = (*words)[1].text;
  if (command != "run" && command != "bench") return false;
  words->erase(words->begin(), words->begin() + (command == "run" ? 2 : 1));
  return true;
}

// Removes the brackets of words that may be left out, and in them words that are not options.
void OpenBrackets(Words* words) {
  for (Word& word : *words) {
    if (word.is_quoted) continue;
    absl::string_view text = word.text;
    const bool is_opened = absl::ConsumePrefix(&text, "[");
    const bool is_closed = absl::ConsumeSuffix(&text, "]");
    if (is_opened && is_closed && !absl::StartsWith(text, "-")) text = "...";
    word.text = std::string(text);
  }
}

void RequireNothing(CLI::App* app) {
  for (CLI::Option* option : app->get_options()) option->required(false);
  for (CLI::App* command : app->get_subcommands(nullptr)) {
    command->require_subcommand(0);
    RequireNothing(command);
  }
}

bool HasOption(const CLI::App* app, const std::string& name) {
  return FindOption(app, name) != nullptr ||
         absl::c_any_of(app->get_subcommands(nullptr),
                        [&](const CLI::App* command) { return HasOption(command, name); });
}

absl::Status CheckOptionsOfAnyCommand(const CLI::App* app, const Words& words) {
  for (const Word& word : words) {
    const std::string name = word.text.substr(0, word.text.find('='));
    if (word.is_quoted || !absl::StartsWith(name, "-") || HasOption(app, name)) continue;
    return absl::InvalidArgumentError(absl::StrCat(name, ": no such option of any command"));
  }
  return absl::OkStatus();
}

// Lets `option` take any value. Returns one that suits numbers and texts.
std::string AcceptAny(const CLI::Option* option) {
  try {
    const_cast<CLI::Option*>(option)->get_validator(0)->active(false);
  } catch (const CLI::OptionNotFound&) {
    // It has no validator.
  }
  return "1";
}

// Parses the arguments as the program would; INVALID_ARGUMENT if it could not. `may_lack`: required
// options may be left out. Otherwise the command checks its options, too; FAILED_PRECONDITION if it
// refuses them, unless a file is missing.
absl::Status CheckArguments(const Words& words, bool may_lack) {
  Program program(80, "version");
  if (!words.empty() && StandsForAny(words[0])) {
    return CheckOptionsOfAnyCommand(program.app(), words);
  }
  std::vector<std::string> typed;
  for (const Word& word : words) typed.push_back(word.text);
  ASSIGN_OR_RETURN(const TypedWords named, WordsOf(program.app(), typed));
  const std::vector<std::string> own = WordsIn(named.entries);
  const CLI::App* command = program.app();
  const CLI::Option* open = nullptr;  // its value is next
  std::vector<std::string> given;
  bool is_whole = !may_lack;
  bool has_all_values = true;
  size_t num_commands = 0;
  for (size_t i = 0; i < words.size(); ++i) {
    std::string word = own[i];
    if (open != nullptr) {
      if (StandsForAny(words[i])) {
        word = AcceptAny(open);
        has_all_values = false;
      }
      open = nullptr;
    } else if (word == "..." && !words[i].is_quoted) {
      is_whole = false;
      continue;
    } else if (absl::StartsWith(word, "-")) {
      const size_t equals = std::min(word.find('='), word.size());
      const CLI::Option* const option = FindOption(command, word.substr(0, equals));
      const bool has_value = option != nullptr && option->get_items_expected_min() > 0;
      if (has_value && equals == word.size()) {
        open = option;
      } else if (has_value && StandsForAny({.text = word.substr(equals + 1)})) {
        word = absl::StrCat(word.substr(0, equals + 1), AcceptAny(option));
        has_all_values = false;
      }
    } else if (const CLI::App* const named = FindCommand(command, word)) {
      command = named;
      ++num_commands;
    } else {
      has_all_values &= !StandsForAny(words[i]);
    }
    given.push_back(word);
  }
  if (!is_whole) RequireNothing(program.app());
  setenv("HF_HUB_OFFLINE", "1", /*overwrite=*/1);
  const auto parsed = program.Parse(given);
  if (!parsed.ok() || parsed->has_value()) return parsed.status();
  const bool only_names = num_commands == words.size();
  if (!is_whole || !has_all_values || only_names) return absl::OkStatus();
  const absl::Status checked = program.command().check();
  return absl::IsInvalidArgument(checked) ? absl::FailedPreconditionError(checked.message())
                                          : absl::OkStatus();
}

// Returns an error "path:line: command: reason" for each command line that does not parse.
std::vector<std::string> WrongCommands(const std::string& path, absl::string_view document,
                                       int* num_commands = nullptr) {
  std::vector<std::string> errors;
  for (const Code& code : CodesOf(document)) {
    int line = code.line;
    std::string script;  // of one line and those that continue it
    for (const absl::string_view part : absl::StrSplit(code.text, '\n')) {
      absl::StrAppend(&script, part, "\n");
      ++line;
      if (absl::EndsWith(part, "\\")) continue;
      for (Words& words : Shell(script).Commands()) {
        if (!ConsumeProgram(&words)) continue;
        OpenBrackets(&words);
        if (num_commands != nullptr) ++*num_commands;
        absl::Status status = CheckArguments(words, /*may_lack=*/false);
        if (absl::IsInvalidArgument(status) && !code.is_block) {
          status = CheckArguments(words, /*may_lack=*/true);
        }
        if (status.ok()) continue;
        const auto continued = absl::c_count(script, '\n');
        errors.push_back(absl::StrCat(path, ":", line - continued, ": ",
                                      absl::StripAsciiWhitespace(script), ": ", status.message()));
      }
      script.clear();
    }
  }
  return errors;
}

std::vector<std::string> WrongIn(absl::string_view document) {
  return WrongCommands("a.md", document);
}

TEST(CommandsInDocuments, Parse) {
  namespace fs = std::filesystem;
  const fs::path root = SourcePath("");
  std::vector<fs::path> paths = {root / "README.md"};
  for (const auto& entry : fs::recursive_directory_iterator(root / "docs")) {
    if (entry.path().extension() == ".md") paths.push_back(entry.path());
  }
  int num_commands = 0;
  for (const fs::path& path : paths) {
    const std::string document = *ReadFile(path.string());
    const std::string name = fs::relative(path, root).generic_string();
    for (const std::string& error : WrongCommands(name, document, &num_commands)) {
      ADD_FAILURE() << error;
    }
  }
  EXPECT_GT(num_commands, 50);
}

TEST(CommandsInDocuments, MayLeaveOutAndStandForWords) {
  const std::string document =
      "Try `tandem quantize`, `tandem bench` or `tandem COMMAND --seed N`.\n"
      "Also `TANDEM_THREADS=1 tandem bench kernels --target DIR --rows\n1,5 [--repeat N]`.\n"
      "\n"
      "```\n"
      "$ tandem generate -p \"...\" -n N -k auto < F.txt 2>&1 | grep --frobnicate  # --wrong\n"
      "cd a && ./dev run chat -m=DIR --threads=N; ./dev bench phases --target DIR &\n"
      "tandem quantize ... --to NAME\n"
      "tandem serve --port 8080 \\\n"
      "  --target T.gguf [options]\n"
      "./dev run\n"
      "./dev test --frobnicate\n"
      "```\n"
      "```python\n"
      "tandem frobnicate\n"
      "```\n"
      "Run `tandemly --frobnicate` or `cp tandem frobnicate`.\n";
  EXPECT_THAT(WrongIn(document), IsEmpty());
}

TEST(CommandsInDocuments, AreSeenToBeWrong) {
  EXPECT_THAT(WrongIn("a\n\nb `tandem genrate`\n"),
              ElementsAre(HasSubstr("a.md:3: tandem genrate: genrate: no such command")));
  EXPECT_THAT(WrongIn("a `tandem\ngenerate --promt a`\n"),
              ElementsAre(HasSubstr("a.md:1: tandem generate --promt a: --promt: no such option")));
  EXPECT_THAT(WrongIn("`tandem generate -n few`"), ElementsAre(HasSubstr("got few")));
  EXPECT_THAT(WrongIn("`tandem generate -n \"N\"`"), ElementsAre(HasSubstr("got N")));
  EXPECT_THAT(WrongIn("`tandem generate --drafter good`"), ElementsAre(HasSubstr("good")));
  EXPECT_THAT(WrongIn("`tandem generate -ngl 99`"), ElementsAre(HasSubstr("-ngl: no such option")));
  EXPECT_THAT(WrongIn("`tandem COMMAND --frobnicate`"),
              ElementsAre(HasSubstr("--frobnicate: no such option of any command")));
  EXPECT_THAT(WrongIn("`./dev run serve [--frobnicate N]`"),
              ElementsAre(HasSubstr("--frobnicate: no such option")));
  EXPECT_THAT(WrongIn("```sh\na\ntandem serve --port 80 \\\n  --hots a\n```\n"),
              ElementsAre(HasSubstr("a.md:3: tandem serve --port 80 \\\n  --hots a: --hots: no")));
  for (const std::string quotes : {"`", "\n```\n"}) {
    EXPECT_THAT(WrongIn(absl::StrCat(quotes, "./dev bench speculation -k 1,many", quotes)),
                ElementsAre(HasSubstr("many")));
    EXPECT_THAT(WrongIn(absl::StrCat(quotes, "tandem help genrate", quotes)),
                ElementsAre(HasSubstr("genrate")));
  }
  EXPECT_THAT(WrongIn("```\na; X=1 build/release/tandem quantize\n```\n"),
              ElementsAre(HasSubstr("is required")));
  EXPECT_THAT(WrongIn("a\n\n    a\n    tandem generate a\nb\n"),
              ElementsAre(HasSubstr("a.md:4: tandem generate a: a: `tandem generate` does not")));
  EXPECT_THAT(WrongIn("- a\n  ```\n  tandem generate a\n  ```\n"),
              ElementsAre(HasSubstr("a.md:3: tandem generate a: a: `tandem generate` does not")));
}

}  // namespace
}  // namespace tandem
