// The program: parses the command line, runs the command, and turns its status into an exit status.
#include <cstdio>
#include <exception>
#include <sstream>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/output_folder.h"
#include "kernels/backend.h"
#include "kernels/built_backends.h"
#include "spdlog/sinks/stdout_color_sinks.h"
#include "spdlog/spdlog.h"
#include "tools/command.h"
#include "tools/command_line.h"
#include "tools/help_text.h"
#include "tools/interrupt_flag.h"
#include "tools/other_names.h"
#include "tools/standard_streams.h"
#include "tools/version.h"

namespace tandem {
namespace {

constexpr int kJobFailed = 1;
constexpr int kCommandLineWrong = 2;
constexpr int kInterrupted = 130;  // 128 + SIGINT
constexpr int kReaderGone = 141;   // 128 + SIGPIPE, which a shell reports for a broken pipe

// Prints an error as one line, even if a library's message has several. Returns `exit_status`.
int Fail(int exit_status, std::string message) {
  message = absl::StrReplaceAll(message, {{"\n", " "}, {"\r", " "}});
  absl::StripAsciiWhitespace(&message);
  std::fprintf(stderr, "tandem: error: %s\n", message.c_str());
  return exit_status;
}

int Fail(int exit_status, const absl::Status& status) {
  return Fail(exit_status, std::string(status.message()));
}

// Returns the exit status of a command, and prints its error. If the reader of standard output has
// closed it, or Ctrl-C has ended the command, prints nothing.
int Finish(const absl::Status& status) {
  if (status.ok()) return 0;
  if (IsInterrupted(status)) return kInterrupted;
  return IsReaderGone(status) ? kReaderGone : Fail(kJobFailed, status);
}

std::string VersionText() {
  return absl::StrCat("tandem ", kVersion, " (", kCommit, ")\ninstruction set: ", CpuIsas().front(),
                      "\nbuilt: ", BuiltBackends());
}

// If an option is given twice, the last value counts, so that a script can override its defaults;
// options that are lists collect all values.
void LetTheLastCount(CLI::App* app) {
  for (CLI::Option* option : app->get_options()) {
    if (option->get_expected_max() == 1) option->take_last();
  }
  for (CLI::App* command : app->get_subcommands(nullptr)) LetTheLastCount(command);
}

int Run(int argc, char** argv) {
  CLI::App program(
      "Speculative decoding of draft and target model pairs: the target's own output, faster.",
      "tandem");
  program.formatter(MakeHelpFormatter(HelpWidth()));  // the commands inherit it
  program.require_subcommand(0, 1);
  program.set_version_flag("--version", VersionText(),
                           "Print version, commit, instruction set and the kernels in this build");
  std::string log_level = "info";
  program.add_option("--log-level", log_level, "debug, info, warn, error, off [info]")
      ->check(CLI::IsMember({"debug", "info", "warn", "error", "off"}))
      ->type_name("L");
  program.fallthrough();  // before the commands are added: they inherit it
  const std::vector<Command> commands = {
      AddGenerateCommand(&program), AddChatCommand(&program),
      AddFetchCommand(&program),    AddTokenizeCommand(&program),
      AddInspectCommand(&program),  AddMakeRandomCommand(&program),
      AddQuantizeCommand(&program), AddPairCommand(&program),
      AddBenchCommand(&program),    AddVerifyLosslessCommand(&program),
      AddServeCommand(&program),    AddKvStoreCommand(&program),
      AddCacheCommand(&program),    AddRankCommand(&program),
      AddFeaturesCommand(&program), AddHelpCommand(&program)};
  LetTheLastCount(&program);
  program.footer(
      "`tandem COMMAND --help` lists the options of a command. Names that llama.cpp has for them, "
      "such as --model, -t, -f, -sys or --draft-max, are understood, too.");
  AddExamples(&program, {"tandem generate -p \"Once upon a time\"", "tandem fetch smollm2",
                         "tandem chat -m smollm2"});
  const absl::StatusOr<std::vector<std::string>> words = WordsOf(&program, argc, argv);
  if (!words.ok()) return Fail(kCommandLineWrong, words.status());
  try {
    program.parse(std::vector<std::string>(words->rbegin(), words->rend()));
  } catch (const CLI::Success& help) {
    std::ostringstream text;
    program.exit(help, text, text);
    return Finish(Print(text.str()));
  } catch (const CLI::ParseError& error) {
    return Fail(kCommandLineWrong, Explained(&program, *words, error));
  }
  if (program.get_subcommands().empty()) return Finish(Print(HelpOf(&program)));
  spdlog::set_default_logger(spdlog::stderr_color_mt("tandem"));
  spdlog::set_level(spdlog::level::from_str(log_level));
  const auto command = absl::c_find_if(commands, [](const Command& c) { return c.app->parsed(); });
  const CLI::App* const app = NamedCommand(&program);
  const absl::Status checked = InOptionNames(app, command->check());
  return checked.ok() ? Finish(InOptionNames(app, command->run()))
                      : Fail(kCommandLineWrong, checked);
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  tandem::PrepareStandardStreams();
  try {
    return tandem::Run(argc, argv);
  } catch (const std::exception& error) {
    // An exception of a library that no caller can handle, mostly std::bad_alloc.
    std::fprintf(stderr, "tandem: error: %s\n", error.what());
    return tandem::kJobFailed;
  }
}
