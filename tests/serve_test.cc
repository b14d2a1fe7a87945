// `tandem serve` as a process: it says where it listens, serves, and ends when it is asked to.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/server_testing.h"

extern char** environ;

namespace tandem {
namespace {

using ::testing::HasSubstr;

// The program with its standard error in a file.
class ServeProcess {
 public:
  explicit ServeProcess(const std::vector<std::string>& extra = {}) {
    log_path_ = absl::StrCat(testing::TempDir(), "/tandem_serve_", getpid(), ".log");
    std::filesystem::remove(log_path_);
    std::vector<std::string> words = {TANDEM_PROGRAM, "serve", "--port",      "0",
                                      "--threads",    "1",     "--kv-memory", "64M",
                                      "--model-name", "story"};
    words.insert(words.end(), extra.begin(), extra.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 2, log_path_.c_str(), O_WRONLY | O_CREAT, 0600);
    TANDEM_CHECK(posix_spawn(&process_, TANDEM_PROGRAM, &files, nullptr, argv.data(), environ) ==
                 0);
    posix_spawn_file_actions_destroy(&files);
  }
  ~ServeProcess() {
    if (process_ != 0) {
      kill(process_, SIGKILL);
      waitpid(process_, nullptr, 0);
    }
    std::filesystem::remove(log_path_);
  }

  std::string log() const {
    std::ifstream file(log_path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // The port that it says it listens at; 0 if it never does.
  int AwaitPort() const {
    for (int i = 0; i < 2000; ++i) {
      const std::string text = log();
      const size_t at = text.find("127.0.0.1:");
      const size_t end = at == std::string::npos ? at : text.find(' ', at);
      int port = 0;
      if (end != std::string::npos &&
          absl::SimpleAtoi(text.substr(at + 10, end - at - 10), &port)) {
        return port;
      }
      absl::SleepFor(absl::Milliseconds(10));
    }
    return 0;
  }
  void Signal(int number) const { kill(process_, number); }
  // Its exit status; -1 if a signal ended it.
  int AwaitEnd() {
    int status = 0;
    TANDEM_CHECK(waitpid(process_, &status, 0) == process_);
    process_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t process_ = 0;
  std::string log_path_;
};

TEST(Serve, EndsWellOnSignals) {
  for (const int number : {SIGTERM, SIGINT}) {
    ServeProcess process;
    const int port = process.AwaitPort();
    ASSERT_NE(port, 0) << process.log();
    Client client(port);
    EXPECT_EQ(client.Ask("POST", "/v1/completions", R"({"prompt": "A"})").status, 200);
    process.Signal(number);
    EXPECT_EQ(process.AwaitEnd(), 0) << process.log();
  }
}

TEST(Serve, FinishesWhatRunsAndLogsEveryRequest) {
  ServeProcess process({"--api-key", "secret"});
  const int port = process.AwaitPort();
  ASSERT_NE(port, 0) << process.log();
  const std::string key = "Authorization: Bearer secret\r\n";
  EXPECT_EQ(Client(port).Ask("POST", "/v1/completions", R"({"prompt": "A"})").status, 401);
  Client client(port);
  client.SendRequest("POST", "/v1/completions",
                     R"({"prompt": "A", "stream": true, "ignore_eos": true, "max_tokens": 900})",
                     key);
  EXPECT_THAT(client.ReadUntil("data: "), HasSubstr("200 OK"));
  process.Signal(SIGTERM);
  EXPECT_THAT(client.ReadUntil("[DONE]"), HasSubstr("\"finish_reason\":\"length\""));
  EXPECT_EQ(process.AwaitEnd(), 0);
  const std::string log = process.log();
  EXPECT_THAT(log, HasSubstr("method=POST path=/v1/completions status=401"));
  EXPECT_THAT(log, HasSubstr("stream=true prompt_tokens=2 completion_tokens=900 finish=length"));
  EXPECT_THAT(log, ::testing::Not(HasSubstr("secret")));
}

}  // namespace
}  // namespace tandem
