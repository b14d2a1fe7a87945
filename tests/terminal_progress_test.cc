// The lines that the program shows on a terminal while a job takes long.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/engine_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tandem/json_value.h"
#include "tests/folder_testing.h"
#include "tests/program_path.h"
#include "tests/run_program.h"
#include "tests/terminal.h"

namespace tandem {
namespace {

using Words = std::vector<std::string>;
using testing::HasSubstr;
using testing::Not;

constexpr char kErased[] = "\r\x1b[K";

// A small model whose attention needs at least a second for a prompt of 12,000 bytes.
class SlowReader {
 public:
  SlowReader() {
    const ProgramRun run = RunProgram({"make-random", "--shape",
                                       "hidden=256,heads=4,kv_heads=4,head_dim=64,"
                                       "context=16384",
                                       "--out", folder_.Path("model")});
    EXPECT_EQ(run.exit_status, kExitDone) << run.err;
    const std::string name = "model/tokenizer_config.json";
    SortedJson config = SortedJson::parse(folder_.Read(name));
    config["chat_template"] = "{% for message in messages %}{{ message['content'] }}{% endfor %}";
    folder_.Write(name, config.dump());
    folder_.Write("long.txt", LongText());
  }
  static std::string LongText() { return std::string(12000, 'a'); }
  std::string LongFile() const { return folder_.Path("long.txt"); }
  Words Command(const std::string& command, const Words& more) const {
    return Joined({command, "--target", folder_.Path("model"), "--drafter", "none", "--device",
                   "cpu", "--threads", "1", "--compute", "f32", "--kv-memory", "256M",
                   "--temperature", "0", "--max-tokens", "4"},
                  more);
  }

 private:
  TestFolder folder_;
};

TEST(TerminalProgress, GenerateTellsHowMuchOfThePromptIsRead) {
  const SlowReader model;
  const Words words = model.Command("generate", {"--prompt-file", model.LongFile()});
  Terminal terminal(ProgramPath(), words);
  ASSERT_TRUE(terminal.Await("reading the prompt: ")) << terminal.seen();
  ASSERT_TRUE(terminal.Await(" of 12,000 tokens")) << terminal.seen();
  ASSERT_TRUE(terminal.Await(" tokens/s\x1b")) << terminal.seen();
  ASSERT_TRUE(terminal.Await("prompt      12,000 tokens")) << terminal.seen();  // of the report
  EXPECT_EQ(terminal.AwaitEnd(), kExitDone);
  const std::string shown = terminal.seen();
  const std::string line = " tokens/s\x1b[?7h\r";
  const size_t end = shown.rfind(line);
  ASSERT_NE(end, std::string::npos);
  EXPECT_EQ(shown.substr(end + line.size(), sizeof(kErased) - 1), kErased);

  const ProgramRun piped = RunProgram(words);
  EXPECT_EQ(piped.exit_status, kExitDone) << piped.err;
  EXPECT_THAT(piped.err, Not(HasSubstr("reading the prompt")));
}

TEST(TerminalProgress, ChatTellsHowMuchOfThePromptIsRead) {
  const SlowReader model;
  Terminal terminal(ProgramPath(), model.Command("chat", {"--system", SlowReader::LongText()}));
  ASSERT_TRUE(terminal.Await("> ")) << terminal.seen();
  terminal.Type("Hi\r");
  ASSERT_TRUE(terminal.Await("reading the prompt: ")) << terminal.seen();
  ASSERT_TRUE(terminal.Await(kErased)) << terminal.seen();
  ASSERT_TRUE(terminal.Await("per round)")) << terminal.seen();
  ASSERT_TRUE(terminal.Await("> "));
  terminal.Type("/quit\r");
  EXPECT_EQ(terminal.AwaitEnd(), kExitDone);
}

// The engine waits for another rank, which never comes.
TEST(TerminalProgress, LoadingTellsTheModel) {
  const std::string target = ShippedModelPath("storyteller-7m");
  Terminal terminal(ProgramPath(),
                    {"generate", "--device", "cpu", "--target", target, "--drafter", "none",
                     "--world", "2", "--rendezvous", "127.0.0.1:0", "--prompt", "A"},
                    "TANDEM_RENDEZVOUS_SECRET=0123456789abcdef0123456789abcdef");
  EXPECT_TRUE(terminal.Await(absl::StrCat("loading ", target, ", "))) << terminal.seen();
}

}  // namespace
}  // namespace tandem
