#include "tests/run_program.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/folder_testing.h"
#include "tests/program_path.h"

extern char** environ;

namespace tandem {
namespace {

ProgramRun Run(std::vector<std::string> words, const std::string& input) {
  const TestFolder folder;
  const std::string in = folder.Write("in", input);
  const std::string out = folder.Path("out");
  const std::string err = folder.Path("err");

  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, in.c_str(), O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, out.c_str(), O_WRONLY | O_CREAT, 0600);
  posix_spawn_file_actions_addopen(&files, 2, err.c_str(), O_WRONLY | O_CREAT, 0600);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t process = 0;
  TANDEM_CHECK(posix_spawn(&process, argv[0], &files, nullptr, argv.data(), environ) == 0);
  posix_spawn_file_actions_destroy(&files);
  int status = 0;
  TANDEM_CHECK(waitpid(process, &status, 0) == process);

  return {.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
          .out = folder.Read("out"),
          .err = folder.Read("err")};
}

}  // namespace

ProgramRun RunProgram(const std::vector<std::string>& arguments, const std::string& input) {
  std::vector<std::string> words = {ProgramPath()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return Run(std::move(words), input);
}

ProgramRun RunScript(const std::string& script, const std::vector<std::string>& arguments,
                     const std::string& input) {
  std::vector<std::string> words = {"/bin/bash", "-c", script, ProgramPath()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return Run(std::move(words), input);
}

void ExpectRefused(const ProgramRun& run, const std::vector<int>& exit_statuses) {
  EXPECT_THAT(exit_statuses, testing::Contains(run.exit_status)) << run.err;
  EXPECT_EQ(run.out, "");
  int num_errors = 0;
  for (const absl::string_view line : absl::StrSplit(run.err, '\n')) {
    num_errors += absl::StartsWith(line, "tandem: error: ");
  }
  EXPECT_EQ(num_errors, 1) << run.err;
}

JsonValue RunJson(const std::vector<std::string>& arguments, const std::string& input) {
  const ProgramRun run = RunProgram(Joined(arguments, {"--json"}), input);
  EXPECT_EQ(run.exit_status, kExitDone) << run.err;
  EXPECT_EQ(std::count(run.out.begin(), run.out.end(), '\n'), 1) << run.out;
  JsonValue json = JsonValue::parse(run.out, nullptr, /*allow_exceptions=*/false);
  EXPECT_FALSE(json.is_discarded()) << run.out;
  return json;
}

}  // namespace tandem
