// The completion of command lines in the shells.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/run_program.h"

namespace tandem {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;

using Words = std::vector<std::string>;

// What bash offers in place of the last word after `tandem`.
Words InBash(const Words& words) {
  const ProgramRun run = RunScript(
      "source <(\"$0\" completion bash)\n"
      "complete -p tandem >/dev/null || exit\n"
      "COMP_WORDS=(\"$0\" \"$@\"); COMP_CWORD=$#\n"
      "_tandem\n"
      "printf '%s\\n' \"${COMPREPLY[@]}\"",
      words);
  EXPECT_EQ(run.exit_status, kExitDone) << run.err;
  EXPECT_EQ(run.err, "");
  return absl::StrSplit(run.out, '\n', absl::SkipEmpty());
}

// Runs the script with a shell whose argument $1 is the program; skips the test without the shell.
ProgramRun RunShell(const std::string& shell, const std::string& script) {
  return RunScript(absl::StrCat("command -v ", shell, " >/dev/null || exit 99\n", shell,
                                " -c \"$1\" \"$0\" \"$0\""),
                   {script});
}

TEST(ShellCompletion, WorksInBash) {
  EXPECT_THAT(InBash({""}), IsSupersetOf({"generate", "serve", "completion"}));
  EXPECT_THAT(InBash({"bench", "k"}), ElementsAre("kernels"));
  EXPECT_THAT(InBash({"serve", "--api"}), ElementsAre("--api-key", "--api-key-file"));
  EXPECT_THAT(InBash({"serve", "--metrics-names", ""}), ElementsAre("tandem", "vllm", "both"));
  EXPECT_THAT(InBash({"serve", "--metrics-names", "=", "v"}), ElementsAre("vllm"));
  EXPECT_THAT(InBash({"generate", "-m", "storyteller-7"}), ElementsAre("storyteller-7m"));
  EXPECT_THAT(InBash({"serve", "--config", "/etc/host"}), Contains("/etc/hosts"));
  EXPECT_THAT(InBash({"pair", "/etc/host"}), Contains("/etc/hosts"));
  EXPECT_THAT(InBash({"completion", "z"}), ElementsAre("zsh"));
}

TEST(ShellCompletion, WorksInZsh) {
  // The functions of zsh that show what was found are replaced by ones that print it.
  const ProgramRun run = RunShell(
      "zsh -f",
      "compdef() { }; _describe() { print -l $found }; compset() { }; _files() { print files }\n"
      "eval \"$($1 completion zsh)\"\n"
      "words=($1 serve --metrics-names v); CURRENT=4; _tandem\n"
      "words=($1 serve --config ''); CURRENT=4; _tandem");
  if (run.exit_status == 99) GTEST_SKIP() << "needs zsh";
  EXPECT_EQ(run.err, "");
  EXPECT_EQ(run.out, "vllm:\nfiles\n");
}

TEST(ShellCompletion, WorksInFish) {
  const ProgramRun run = RunShell("fish --no-config",
                                  "$argv[1] completion fish | source\n"
                                  "complete -C \"$argv[1] serve --metrics-names \"\n"
                                  "complete -C \"$argv[1] bench k\"\n"
                                  "complete -C \"$argv[1] fetc\"");
  if (run.exit_status == 99) GTEST_SKIP() << "needs fish";
  EXPECT_EQ(run.err, "");
  EXPECT_THAT(run.out, HasSubstr("both\ntandem\nvllm\n"));
  EXPECT_THAT(run.out, HasSubstr("\nkernels\t"));
  EXPECT_THAT(run.out, HasSubstr("\nfetch\tFetch "));
}

TEST(ShellCompletion, RefusesOtherShells) {
  const ProgramRun run = RunProgram({"completion", "csh"});
  ExpectRefused(run, {kExitWrongLine});
  EXPECT_THAT(run.err, HasSubstr("SHELL: \"csh\" is not one of bash, zsh, fish"));
}

}  // namespace
}  // namespace tandem
