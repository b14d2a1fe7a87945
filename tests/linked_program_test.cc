// Ranks on several machines, as users of the program see them: processes that connect at an
// address.
#include <unistd.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/net/address.h"
#include "engine/engine_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/run_program.h"

namespace tandem {
namespace {

using Words = std::vector<std::string>;
using testing::HasSubstr;

Words Generate(const Words& more = {}) {
  return Joined({"generate", "--device", "cpu", "--threads", "1", "--target",
                 ShippedModelPath("storyteller-7m"), "--draft", ShippedModelPath("storyteller-1m"),
                 "-k", "4", "--temperature", "0", "-n", "24", "-p", "Once upon a time", "--json"},
                more);
}

std::string FreeRendezvous() {
  net::io_context io;
  const Address any(net::ip::address_v4::loopback(), 0);
  return ToString(net::ip::tcp::acceptor(io, any).local_endpoint());
}

constexpr char kSecret[] = "0123456789abcdef0123456789abcdef";

// Runs rank 1 and then rank 0 with these arguments. The result's err has the logs of both, and the
// exit status of rank 1.
ProgramRun RunTwo(const Words& arguments, const std::string& more_of_one = "") {
  return RunScript(
      absl::StrCat("export TANDEM_RENDEZVOUS_SECRET=", kSecret, "; \"$0\" \"$@\" --rank 1 ",
                   more_of_one, " >&2 & \"$0\" \"$@\"; status=$?; ",
                   "wait $!; echo \"rank 1 ended: $?\" >&2; exit $status"),
      Joined(arguments, {"--world", "2", "--rendezvous", FreeRendezvous()}));
}

TEST(LinkedProgram, TwoProcessesWriteTheTextOfOne) {
  const JsonValue alone = RunJson(Generate());
  for (const Words& more : {Words{}, Words{"--draft-tensor-parallel"}}) {
    const ProgramRun run = RunTwo(Generate(more));
    ASSERT_EQ(run.exit_status, kExitDone) << run.err;
    EXPECT_EQ(JsonValue::parse(run.out)["token_ids"], alone["token_ids"]) << run.err;
    EXPECT_THAT(run.err, HasSubstr("rank 1 ended: 0"));
    EXPECT_THAT(run.err, HasSubstr("rank=1 of 2 follows rank 0 at 127.0.0.1:"));
    EXPECT_THAT(run.err, HasSubstr("and does not do a job of its own"));
  }
}

TEST(LinkedProgram, AnotherModelIsRefusedOnBothSides) {
  const ProgramRun run =
      RunTwo(Generate(), absl::StrCat("--target ", ShippedModelPath("storyteller-1m")));
  EXPECT_EQ(run.exit_status, kExitFailed);
  EXPECT_THAT(run.err, HasSubstr("rank 1 ended: 1"));
  const std::string what = absl::StrCat("target: \"", ShippedModelPath("storyteller-1m"),
                                        "\" is not the same model as rank 0's \"",
                                        ShippedModelPath("storyteller-7m"), "\"");
  EXPECT_THAT(run.err, HasSubstr(absl::StrCat("error: --", what)));
  EXPECT_THAT(run.err, HasSubstr(absl::StrCat("error: --tensor-parallel: rank 1: ", what)));
}

// One machine has memory for many pages, the other does not have any for a page.
TEST(LinkedProgram, EveryMachineLimitsTheNumberOfPages) {
  const ProgramRun run = RunTwo(Generate(), "--kv-memory 1K");
  EXPECT_EQ(run.exit_status, kExitFailed);
  EXPECT_THAT(run.err, HasSubstr("the machine of rank 1 has no memory for a page of 16 tokens"));
}

TEST(LinkedProgram, AnotherSecretIsRefused) {
  const ProgramRun run = RunScript(
      absl::StrCat("export TANDEM_RENDEZVOUS_SECRET=", kSecret, "; \"$0\" \"$@\" & zero=$!; ",
                   "TANDEM_RENDEZVOUS_SECRET=wrong", kSecret, " \"$0\" \"$@\" --rank 1; ",
                   "echo \"rank 1 ended: $?\" >&2; \"$0\" \"$@\" --rank 1; wait $zero"),
      Generate({"--world", "2", "--rendezvous", FreeRendezvous()}));
  EXPECT_EQ(run.exit_status, kExitDone) << run.err;
  EXPECT_THAT(run.err, HasSubstr(": its secret differs from ours"));
  EXPECT_THAT(run.err, HasSubstr("rank 1 ended: 1"));
}

TEST(LinkedProgramOptions, InvalidValuesAreNamed) {
  setenv("TANDEM_RENDEZVOUS_SECRET", kSecret, 1);
  const auto expect = [](const Words& more, const std::string& error) {
    const ProgramRun run = RunProgram(Generate(more));
    EXPECT_EQ(run.exit_status, kExitWrongLine);
    EXPECT_EQ(run.err, absl::StrCat("tandem: error: ", error, "\n"));
  };
  expect({"--rank", "2", "--world", "2", "--rendezvous", "127.0.0.1:1"},
         "--rank: must be from 0 to 1, got 2");
  expect({"--rank", "1", "--world", "2"}, "--rendezvous: must be given if rank is above 0");
  expect({"--rendezvous", "127.0.0.1:1"}, "--rendezvous: needs a tensor_parallel above 1");
  expect({"--world", "2", "--rendezvous", "here"},
         "--rendezvous: must be HOST:PORT with a port from 0 to 65535, got \"here\"");
  expect({"--world", "2", "--tensor-parallel", "3", "--rendezvous", "127.0.0.1:1"},
         "--world: must be the same as --tensor-parallel, which is 3, got 2");
  expect({"--rendezvous-secret-file", "x"}, "--rendezvous-secret-file: needs a --rendezvous");
  unsetenv("TANDEM_RENDEZVOUS_SECRET");
  expect({"--world", "2", "--rendezvous", "127.0.0.1:1"},
         "--rendezvous-secret-file: is required by --rendezvous, unless TANDEM_RENDEZVOUS_SECRET "
         "holds the secret; `openssl rand -hex 32` makes one");
}

}  // namespace
}  // namespace tandem
