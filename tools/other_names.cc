#include "tools/other_names.h"

#include <algorithm>
#include <iterator>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "tools/command_line.h"

namespace tandem {
namespace {

// Another engine's name, and the options that mean the same. The first that the command has counts.
struct OtherName {
  absl::string_view name;
  absl::string_view option;
  absl::string_view or_else = "";
};

constexpr OtherName kOtherNames[] = {{"--model", "--target", "--tokenizer"},
                                     {"-hf", "--target", "--tokenizer"},
                                     {"-hfr", "--target", "--tokenizer"},
                                     {"--hf-repo", "--target", "--tokenizer"},
                                     {"-hfd", "--draft"},
                                     {"-hfrd", "--draft"},
                                     {"--hf-repo-draft", "--draft"},
                                     {"-md", "--draft"},
                                     {"--model-draft", "--draft"},
                                     {"-dev", "--device"},
                                     {"-t", "--threads"},
                                     {"--ctx-size", "--context"},
                                     {"--max-model-len", "--context"},
                                     {"-np", "--max-batch"},
                                     {"--parallel", "--max-batch"},
                                     {"-a", "--model-name"},
                                     {"--alias", "--model-name"},
                                     {"--served-model-name", "--model-name"},
                                     {"--draft-max", "--draft-tokens"},
                                     {"--draft-n", "--draft-tokens"},
                                     {"-f", "--prompt-file", "--file"},
                                     {"--file", "--prompt-file"},
                                     {"-sys", "--system"},
                                     {"--system-prompt", "--system"},
                                     {"--n-predict", "--max-tokens"},
                                     {"--predict", "--max-tokens"},
                                     {"--temp", "--temperature"},
                                     {"--repeat-penalty", "--repetition-penalty"},
                                     {"-s", "--seed"},
                                     {"-j", "--json-schema"},
                                     {"--grammar-file", "--grammar"},
                                     {"-help", "--help"}};

// Names of which no option means the same.
struct Advice {
  absl::string_view name;
  absl::string_view advice;
};

constexpr absl::string_view kLayers =
    "--device cuda:0 computes all layers on a GPU, --device cpu none";
constexpr absl::string_view kFile = "name the file after the repository: -m ORG/NAME:FILE";
constexpr absl::string_view kToken = "the token of the hub is in the variable HF_TOKEN";
constexpr absl::string_view kConversation =
    "`tandem chat` holds a conversation, and `tandem generate --chat` answers one message";

constexpr Advice kAdvice[] = {
    {"-ngl", kLayers},      {"--n-gpu-layers", kLayers}, {"--gpu-layers", kLayers},
    {"-hff", kFile},        {"--hf-file", kFile},        {"-hft", kToken},
    {"--hf-token", kToken}, {"-cnv", kConversation},     {"--conversation", kConversation},
};

constexpr absl::string_view kNames = "`tandem fetch` lists the models that are known by name";

constexpr Advice kCommands[] = {
    {"pull", "`tandem fetch NAME` fetches a model"},
    {"run", "`tandem chat -m MODEL` holds a conversation, and `tandem generate` writes a text"},
    {"list", kNames},
    {"ls", kNames},
    {"show", "`tandem inspect MODEL` describes a model"},
};

}  // namespace

absl::StatusOr<std::string> InOwnNames(const CLI::App* command, const std::string& word) {
  const std::string name = word.substr(0, word.find('='));
  if (FindOption(command, name) != nullptr) return word;
  const auto is_it = [&](const auto& each) { return each.name == name; };
  const auto* const other = std::find_if(std::begin(kOtherNames), std::end(kOtherNames), is_it);
  const bool is_known = other != std::end(kOtherNames);
  if (is_known) {
    for (const absl::string_view option : {other->option, other->or_else}) {
      if (option.empty() || FindOption(command, std::string(option)) == nullptr) continue;
      return absl::StrCat(option, word.substr(name.size()));
    }
  }
  const auto* const advice = std::find_if(std::begin(kAdvice), std::end(kAdvice), is_it);
  if (advice != std::end(kAdvice)) {
    return absl::InvalidArgumentError(NoSuchOption(command, name, advice->advice));
  }
  // The parser would take the first letter for an option: -h, whatever follows it.
  const bool would_be_help = absl::StartsWith(name, "-h") && name != "-h";
  if (is_known || would_be_help) return absl::InvalidArgumentError(NoSuchOption(command, name));
  return word;
}

absl::StatusOr<TypedWords> WordsOf(const CLI::App* program, const std::vector<std::string>& words) {
  TypedWords typed = {.command = program};
  bool has_options = true;
  for (size_t i = 0; i < words.size(); ++i) {
    OptionWords& entry = typed.entries.emplace_back(OptionWords{.words = {words[i]}});
    std::string& word = entry.words.front();
    if (!has_options) continue;
    if (word == "--") {
      has_options = false;
    } else if (absl::StartsWith(word, "-")) {
      ASSIGN_OR_RETURN(word, InOwnNames(typed.command, word));
      // --option, --option=value, -o or -ovalue
      const bool is_long = absl::StartsWith(word, "--");
      const size_t end = is_long ? std::min(word.find('='), word.size()) : 2;
      entry.option = FindOption(typed.command, word.substr(0, end));
      const bool has_value = word.size() > end + (is_long ? 1 : 0);
      const bool needs_value =
          entry.option != nullptr && entry.option->get_items_expected_min() > 0;
      if (needs_value && !has_value && i + 1 < words.size()) entry.words.push_back(words[++i]);
    } else if (const CLI::App* const named = FindCommand(typed.command, word)) {
      typed.command = named;
      typed.num_before = typed.entries.size();
    }
  }
  return typed;
}

absl::string_view AdviceOnCommand(absl::string_view name) {
  const auto* const found = std::find_if(std::begin(kCommands), std::end(kCommands),
                                         [&](const Advice& each) { return each.name == name; });
  return found == std::end(kCommands) ? "" : found->advice;
}

}  // namespace tandem
