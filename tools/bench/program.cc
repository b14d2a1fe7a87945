#include "tools/program.h"

#include <stdlib.h>

#include <sstream>

#include "absl/algorithm/container.h"
#include "tools/command_line.h"
#include "tools/help_text.h"
#include "tools/option_group.h"

namespace tandem {
namespace {

// If an option is given twice, the last value counts, so that a script can override its defaults;
// options that are lists collect all values, each of which needs the option's name again. Every
// command with options gets --config.
void Complete(CLI::App* app, std::string* config) {
  const auto is_option = [](const CLI::Option* option) { return option->nonpositional(); };
  const bool has_options = absl::c_count_if(app->get_options(), is_option) > 1;  // not only --help
  if (has_options && app->get_parent() != nullptr) {
    OptionGroup(app).Add("--config", "F.toml", config,
                         "A file with options (`tandem --help` says more)");
  }
  for (CLI::Option* option : app->get_options()) {
    if (option->get_expected_max() == 1) option->take_last();
    if (option->nonpositional()) option->allow_extra_args(false);
  }
  for (CLI::App* command : app->get_subcommands(nullptr)) Complete(command, config);
}

}  // namespace

Program::Program(int help_width, const std::string& version)
    : app_("Speculative decoding of draft and target model pairs: the target's own output, faster.",
           "tandem") {
  app_.formatter(MakeHelpFormatter(help_width));  // the commands inherit it
  app_.require_subcommand(0, 1);
  app_.set_version_flag("--version", version,
                        "Print version, commit, instruction set and the kernels built");
  OptionGroup(&app_).Add("--log-level", "L", &log_level_, "debug, info, warn, error, off [info]",
                         OneOf{{"debug", "info", "warn", "error", "off"}});
  app_.add_flag_callback(
      "--offline", [] { setenv("HF_HUB_OFFLINE", "1", /*overwrite=*/1); },
      "Fetch nothing: use only models that are here [$HF_HUB_OFFLINE]");
  app_.fallthrough();  // before the commands are added: they inherit it
  for (const auto add :
       {AddGenerateCommand, AddChatCommand,       AddFetchCommand,    AddTokenizeCommand,
        AddInspectCommand,  AddMakeRandomCommand, AddQuantizeCommand, AddPairCommand,
        AddDraftsCommand,   AddBenchCommand,      AddLabCommand,      AddVerifyLosslessCommand,
        AddProveCommand,    AddServeCommand,      AddKvStoreCommand,  AddCacheCommand,
        AddRankCommand,     AddFeaturesCommand,   AddHelpCommand,     AddCompletionCommand,
        AddCompleteCommand}) {
    commands_.push_back(add(&app_));
  }
  Complete(&app_, &config_);
  app_.footer(
      "`tandem COMMAND --help` lists the options of a command. Names that llama.cpp has for them, "
      "such as --model, -t, -f, -sys or --draft-max, are understood, too.\n\n"
      "Options may also come from the environment, TANDEM_OPT_DRAFT_TOKENS=4 for --draft-tokens 4, "
      "and from a file in TOML that --config names: draft-tokens = 4. Its table [serve] is of this "
      "command only. The command line counts before the environment, and the environment before "
      "the file.");
  AddExamples(&app_, {"tandem generate -p \"Once upon a time\"", "tandem fetch smollm2",
                      "tandem chat -m smollm2"});
}

absl::StatusOr<std::optional<std::string>> Program::Parse(const std::vector<std::string>& words) {
  try {
    app_.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::Success& help) {
    std::ostringstream text;
    app_.exit(help, text, text);
    return text.str();
  } catch (const CLI::ParseError& error) {
    return absl::InvalidArgumentError(Explained(&app_, words, error));
  }
  if (app_.get_subcommands().empty()) return HelpOf(&app_);
  return std::nullopt;
}

const Command& Program::command() const {
  return *absl::c_find_if(commands_, [](const Command& c) { return c.app->parsed(); });
}

}  // namespace tandem
