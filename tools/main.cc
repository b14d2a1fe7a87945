// The program: parses the command line, runs the command, and turns its status into an exit status.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <vector>

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
#include "tools/program.h"
#include "tools/settings.h"
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

// Returns the exit status of a command, and prints its error: `failed`, unless the error has one.
// If the reader of standard output has closed it, or Ctrl-C has ended the command, prints nothing.
int Finish(const absl::Status& status, int failed = kJobFailed) {
  if (status.ok()) return 0;
  if (IsInterrupted(status)) return kInterrupted;
  return IsReaderGone(status) ? kReaderGone : Fail(ExitStatusOf(status, failed), status);
}

std::string VersionText() {
  return absl::StrCat("tandem ", kVersion, " (", kCommit, ")\ninstruction set: ", CpuIsas().front(),
                      "\nbuilt: ", BuiltBackends());
}

int Run(int argc, char** argv) {
  Program program(HelpWidth(), VersionText());
  const absl::StatusOr<TypedWords> typed =
      WordsOf(program.app(), {argv + std::min(argc, 1), argv + argc});
  if (!typed.ok()) return Fail(kCommandLineWrong, typed.status());
  const auto given = WithSettings(program.app(), *typed, environ);
  if (!given.ok()) return Fail(kCommandLineWrong, given.status());
  const absl::StatusOr<std::optional<std::string>> text = program.Parse(WordsIn(*given));
  if (!text.ok()) return Fail(kCommandLineWrong, InSource(*given, text.status()));
  if (text->has_value()) return Finish(Print(**text));
  spdlog::set_default_logger(spdlog::stderr_color_mt("tandem"));
  spdlog::set_level(spdlog::level::from_str(program.log_level()));
  const CLI::App* const app = typed->command;
  const auto named = [&](const absl::Status& status) {
    return InSource(*given, InOptionNames(app, status));
  };
  const absl::Status checked = named(program.command().check());
  return checked.ok() ? Finish(named(program.command().run())) : Finish(checked, kCommandLineWrong);
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
