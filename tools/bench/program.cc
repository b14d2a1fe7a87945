#include "tools/program.h"

#include <stdlib.h>

#include <sstream>

#include "absl/algorithm/container.h"
#include "tools/command_line.h"
#include "tools/help_text.h"

namespace tandem {
namespace {

// If an option is given twice, the last value counts, so that a script can override its defaults;
// options that are lists collect all values.
void LetTheLastCount(CLI::App* app) {
  for (CLI::Option* option : app->get_options()) {
    if (option->get_expected_max() == 1) option->take_last();
  }
  for (CLI::App* command : app->get_subcommands(nullptr)) LetTheLastCount(command);
}

}  // namespace

Program::Program(int help_width, const std::string& version)
    : app_("Speculative decoding of draft and target model pairs: the target's own output, faster.",
           "tandem") {
  app_.formatter(MakeHelpFormatter(help_width));  // the commands inherit it
  app_.require_subcommand(0, 1);
  app_.set_version_flag("--version", version,
                        "Print version, commit, instruction set and the kernels built");
  app_.add_option("--log-level", log_level_, "debug, info, warn, error, off [info]")
      ->check(CLI::IsMember({"debug", "info", "warn", "error", "off"}))
      ->type_name("L");
  app_.add_flag_callback(
      "--offline", [] { setenv("HF_HUB_OFFLINE", "1", /*overwrite=*/1); },
      "Fetch nothing: use only models that are here [$HF_HUB_OFFLINE]");
  app_.fallthrough();  // before the commands are added: they inherit it
  for (const auto add :
       {AddGenerateCommand, AddChatCommand, AddFetchCommand, AddTokenizeCommand, AddInspectCommand,
        AddMakeRandomCommand, AddQuantizeCommand, AddPairCommand, AddBenchCommand, AddLabCommand,
        AddVerifyLosslessCommand, AddProveCommand, AddServeCommand, AddKvStoreCommand,
        AddCacheCommand, AddRankCommand, AddFeaturesCommand, AddHelpCommand}) {
    commands_.push_back(add(&app_));
  }
  LetTheLastCount(&app_);
  app_.footer(
      "`tandem COMMAND --help` lists the options of a command. Names that llama.cpp has for them, "
      "such as --model, -t, -f, -sys or --draft-max, are understood, too.");
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
