// The program: finds the command, runs it, turns its status into an exit status.
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "kernels/backend.h"
#include "spdlog/sinks/stdout_color_sinks.h"
#include "spdlog/spdlog.h"
#include "tools/command.h"
#include "tools/version.h"

namespace tandem {
namespace {

constexpr int kJobFailed = 1;
constexpr int kCommandLineWrong = 2;

// One line, whatever a library's message holds.
int Fail(int exit_status, std::string message) {
  message = absl::StrReplaceAll(message, {{"\n", " "}, {"\r", " "}});
  absl::StripAsciiWhitespace(&message);
  std::fflush(stdout);
  std::fprintf(stderr, "tandem: error: %s\n", message.c_str());
  return exit_status;
}

int Fail(int exit_status, const absl::Status& status) {
  return Fail(exit_status, std::string(status.message()));
}

std::string VersionText() {
  return absl::StrCat("tandem ", kVersion, " (", kCommit,
                      "), instruction sets: ", CpuIsas().front(),
                      ", CUDA in build: ", BuiltWithCuda() ? "yes" : "no");
}

// Of an option given twice the last counts, so that a script can override its defaults; options
// that are lists collect.
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
  program.require_subcommand(1);
  program.set_version_flag("--version", VersionText(), "Print version, commit and instruction set");
  std::string log_level = "info";
  program.add_option("--log-level", log_level, "debug, info, warn, error, off [info]")
      ->check(CLI::IsMember({"debug", "info", "warn", "error", "off"}))
      ->type_name("L");
  program.fallthrough();  // before the commands, which inherit it
  const std::vector<Command> commands = {
      AddGenerateCommand(&program),       AddTokenizeCommand(&program), AddInspectCommand(&program),
      AddMakeRandomCommand(&program),     AddQuantizeCommand(&program), AddBenchCommand(&program),
      AddVerifyLosslessCommand(&program), AddServeCommand(&program)};
  LetTheLastCount(&program);
  try {
    program.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return program.exit(help);
  } catch (const CLI::ParseError& error) {
    return Fail(kCommandLineWrong, std::string(error.what()));
  }
  spdlog::set_default_logger(spdlog::stderr_color_mt("tandem"));
  spdlog::set_level(spdlog::level::from_str(log_level));
  for (const Command& command : commands) {
    if (!command.app->parsed()) continue;
    if (const absl::Status status = command.check(); !status.ok()) {
      return Fail(kCommandLineWrong, status);
    }
    if (const absl::Status status = command.run(); !status.ok()) return Fail(kJobFailed, status);
  }
  if (std::fflush(stdout) != 0) return Fail(kJobFailed, "cannot write to standard output");
  return 0;
}

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  try {
    return tandem::Run(argc, argv);
  } catch (const std::exception& error) {
    // Of a library, where no caller could do better; memory, mostly.
    std::fprintf(stderr, "tandem: error: %s\n", error.what());
    return tandem::kJobFailed;
  }
}
