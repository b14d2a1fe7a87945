// `tandem serve` as a process: it logs its address, serves, and ends on request.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "engine/engine_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/server_testing.h"
#include "tests/folder_testing.h"
#include "tests/head_folder.h"
#include "tests/program_path.h"
#include "tests/run_program.h"

extern char** environ;

namespace tandem {
namespace {

using ::testing::HasSubstr;

// The program, with its standard error in a file or in a pipe that the test reads.
class ServeProcess {
 public:
  enum class Log { kFile, kPipe };
  explicit ServeProcess(const std::vector<std::string>& extra = {}, Log log = Log::kFile) {
    if (log == Log::kPipe) {
      TANDEM_CHECK(mkfifo(log_path_.c_str(), 0600) == 0);
      pipe_ = open(log_path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    }
    std::vector<std::string> words = {ProgramPath(),  "serve",
                                      "--port",       "0",
                                      "--threads",    "1",
                                      "--kv-memory",  "64M",
                                      "--model-name", "story",
                                      "--target",     ShippedModelPath("storyteller-7m"),
                                      "--draft",      ShippedModelPath("storyteller-1m")};
    words.insert(words.end(), extra.begin(), extra.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 2, log_path_.c_str(), O_WRONLY | O_CREAT, 0600);
    TANDEM_CHECK(posix_spawn(&process_, words[0].c_str(), &files, nullptr, argv.data(), environ) ==
                 0);
    posix_spawn_file_actions_destroy(&files);
  }
  ~ServeProcess() {
    if (process_ != 0) {
      kill(process_, SIGKILL);
      waitpid(process_, nullptr, 0);
    }
    if (pipe_ >= 0) close(pipe_);
  }

  std::string log() {
    if (pipe_ < 0) {
      std::ifstream file(log_path_);
      return {std::istreambuf_iterator<char>(file), {}};
    }
    char bytes[4096];
    for (ssize_t size; (size = read(pipe_, bytes, sizeof(bytes))) > 0;) {
      piped_.append(bytes, static_cast<size_t>(size));
    }
    return piped_;
  }
  // Shrinks the pipe. It is read only in log().
  void NarrowLog() const { TANDEM_CHECK(fcntl(pipe_, F_SETPIPE_SZ, 4096) > 0); }
  // Closes the reading end of the pipe.
  void LeaveLog() { close(std::exchange(pipe_, -1)); }
  struct Memory {
    int64_t virtual_bytes = 0;
    int64_t resident_bytes = 0;
  };
  Memory memory() const {
    std::ifstream file(absl::StrCat("/proc/", process_, "/statm"));
    Memory pages;
    file >> pages.virtual_bytes >> pages.resident_bytes;
    const int64_t page_bytes = sysconf(_SC_PAGESIZE);
    return {pages.virtual_bytes * page_bytes, pages.resident_bytes * page_bytes};
  }
  // Waits for the log line with the port and returns the port, or 0 if the process ends first.
  int AwaitPort() {
    while (IsRunning()) {
      const std::string text = log();
      const size_t address = text.find("address=http://");
      const size_t at = text.find_last_of(':', text.find(' ', address));
      const size_t end = text.find(' ', at);
      int port = 0;
      if (address != std::string::npos && end != std::string::npos &&
          absl::SimpleAtoi(text.substr(at + 1, end - at - 1), &port)) {
        return port;
      }
      absl::SleepFor(absl::Milliseconds(10));
    }
    return 0;
  }
  bool IsRunning() const {
    siginfo_t info = {};
    constexpr int kLook = WEXITED | WNOHANG | WNOWAIT;
    TANDEM_CHECK(waitid(P_PID, static_cast<id_t>(process_), &info, kLook) == 0);
    return info.si_pid == 0;
  }
  void Signal(int number) const { kill(process_, number); }
  // Waits for the process and returns its exit status, or the negated number of the signal that
  // ended it.
  int AwaitEnd() {
    int status = 0;
    TANDEM_CHECK(waitpid(process_, &status, 0) == process_);
    process_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t process_ = 0;
  const TestFolder folder_;
  const std::string log_path_ = folder_.Path("log");
  int pipe_ = -1;
  std::string piped_;
};

// Returns the error for a wrong command line.
std::string Refusal(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "serve");
  const ProgramRun run = RunProgram(arguments);
  EXPECT_EQ(run.exit_status, 2) << run.err;
  return run.err;
}

TEST(Serve, ShutsDownOnSignals) {
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
    ServeProcess process;
    const int port = process.AwaitPort();
    ASSERT_NE(port, 0) << process.log();
    Client client(port);
    EXPECT_EQ(client.Ask("POST", "/v1/completions", R"({"prompt": "A"})").status, 200);
    process.Signal(number);
    EXPECT_EQ(process.AwaitEnd(), 0) << process.log();
  }
}

// nohup starts a program with SIGHUP ignored.
TEST(Serve, GoesOnAfterAHangupThatIsIgnored) {
  const auto before = signal(SIGHUP, SIG_IGN);
  ServeProcess process({"--host", "0.0.0.0"});
  signal(SIGHUP, before);
  const int port = process.AwaitPort();
  ASSERT_NE(port, 0) << process.log();
  process.Signal(SIGHUP);
  EXPECT_EQ(Client(port).Ask("POST", "/v1/completions", R"({"prompt": "A"})").status, 200);
  process.Signal(SIGTERM);
  EXPECT_EQ(process.AwaitEnd(), 0) << process.log();
  EXPECT_THAT(process.log(), HasSubstr("open host=0.0.0.0 why="));  // other machines need no key
}

// Before the program serves, a signal kills it by default. After that it shuts down by itself.
TEST(Serve, EndsOnASignalDuringStartup) {
  for (int milliseconds = 1; milliseconds < 300; milliseconds *= 2) {
    ServeProcess process;
    absl::SleepFor(absl::Milliseconds(milliseconds));
    process.Signal(SIGTERM);
    EXPECT_THAT(process.AwaitEnd(), ::testing::AnyOf(0, -SIGTERM)) << process.log();
  }
}

TEST(Serve, FinishesRunningRequestsAndLogsEveryRequest) {
  // Running requests can finish even on a slow machine.
  ServeProcess process({"--api-key", "secret", "--drain-seconds", "3600"});
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

// SIGPIPE, from a pipe without a reader, ends a process by default.
TEST(Serve, GoesOnIfItsLogPipeIsClosed) {
  ServeProcess process({}, ServeProcess::Log::kPipe);
  const int port = process.AwaitPort();
  ASSERT_NE(port, 0) << process.log();
  process.LeaveLog();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Client(port).Ask("POST", "/v1/completions", R"({"prompt": "A"})").status, 200);
  }
  process.Signal(SIGTERM);
  EXPECT_EQ(process.AwaitEnd(), 0);
}

// A pipe that is open but not read holds 64 KiB. Writes beyond that block.
TEST(Serve, GoesOnIfItsLogPipeIsFull) {
  ServeProcess process({}, ServeProcess::Log::kPipe);
  const int port = process.AwaitPort();
  ASSERT_NE(port, 0) << process.log();
  process.NarrowLog();
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(Client(port).Ask("GET", absl::StrCat("/v1/models/", std::string(200, 'x'))).status,
              404);
  }
  EXPECT_EQ(Client(port).Ask("POST", "/v1/completions", R"({"prompt": "A"})").status, 200);
  process.Signal(SIGTERM);
  EXPECT_EQ(process.AwaitEnd(), 0);
}

// A request can take a hundred times the size of its body while it is processed. That memory must
// be returned.
TEST(Serve, GivesMemoryBack) {
  ServeProcess process;
  const int port = process.AwaitPort();
  ASSERT_NE(port, 0) << process.log();
  const std::string small = R"({"prompt": "A", "max_tokens": 1, "user": ")";
  EXPECT_EQ(
      Client(port).Ask("POST", "/v1/completions", small + std::string(100'000, 'x') + "\"}").status,
      200);
  const ServeProcess::Memory before = process.memory();
  if (before.virtual_bytes > int64_t{1} << 40) GTEST_SKIP() << "sanitizers keep freed memory";
  std::string body = R"({"prompt": "A", "nobody_knows": [)";
  while (body.size() < (4 << 20) - 20) body += "[1,[2]],";
  EXPECT_EQ(Client(port).Ask("POST", "/v1/completions", body + "1]}").status, 200);
  // Memory is returned some time after the answer. ctest ends a test that waits forever.
  while (process.memory().resident_bytes - before.resident_bytes >= 32 << 20) {
    absl::SleepFor(absl::Milliseconds(10));
  }
}

// A target whose publisher recommends greedy sampling.
TEST(Serve, FollowsTheSamplingOfModelAndRequest) {
  const ModelCopy model(ShippedModelPath("storyteller-7m"));
  model.Write("generation_config.json", R"({"do_sample": false})");
  const auto ask = [](int port, const std::string& fields) {
    const Answer answer = Client(port).Ask(
        "POST", "/v1/completions",
        R"({"prompt": "Once", "max_tokens": 24, "ignore_eos": true)" + fields + "}");
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json();
  };
  SortedJson greedy;
  {
    ServeProcess process({"--target", model.path(), "--drafter", "ngram"});
    const int port = process.AwaitPort();
    ASSERT_NE(port, 0) << process.log();
    greedy = ask(port, "")["choices"][0]["token_ids"];
    EXPECT_EQ(ask(port, R"(, "temperature": 0)")["choices"][0]["token_ids"], greedy);
    // A request can name any available drafter, whatever the default is.
    for (const char* drafter : {"model", "ngram", "model+ngram", "none"}) {
      const auto answer =
          ask(port, absl::StrCat(R"(, "speculation": {"drafter": ")", drafter, "\"}"));
      EXPECT_EQ(answer["choices"][0]["token_ids"], greedy) << drafter;
      EXPECT_EQ(answer["speculation"]["drafter"], drafter);
    }
    process.Signal(SIGTERM);
    EXPECT_EQ(process.AwaitEnd(), 0) << process.log();
  }
  {
    ServeProcess process({"--target", model.path(), "--generation-config", "none"});
    const int port = process.AwaitPort();
    ASSERT_NE(port, 0) << process.log();
    EXPECT_NE(ask(port, R"(, "seed": 1)")["choices"][0]["token_ids"], greedy);
  }
  model.Write("generation_config.json", R"({"top_p": 7})");
  EXPECT_THAT(Refusal({"--target", model.path()}),
              HasSubstr("generation_config.json: top_p: must be above 0 and at most 1, got 7"));
}

TEST(Serve, DraftsWithAHead) {
  const std::string target = ShippedModelPath("storyteller-7m");
  const HeadFolder head(target, TextsOf(target, {"Once upon a time"}, 48), {.is_one_layer = true});
  ServeProcess process({"--draft", head.path()});
  const int port = process.AwaitPort();
  ASSERT_NE(port, 0) << process.log();
  const auto ask = [&](const std::string& speculation) {
    const Answer answer = Client(port).Ask(
        "POST", "/v1/completions",
        R"({"prompt": "Once upon a time", "max_tokens": 40, "temperature": 0, "speculation": )" +
            speculation + "}");
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json();
  };
  const auto plain = ask(R"({"drafter": "none"})");
  for (const std::string drafter : {"eagle3", "model"}) {
    // A fixed length, because `auto` can find that this head does not pay on a slow machine.
    const auto answer = ask(R"({"drafter": ")" + drafter + R"(", "draft_tokens": 2})");
    EXPECT_EQ(answer["choices"][0]["text"], plain["choices"][0]["text"]);
    EXPECT_EQ(answer["speculation"]["drafter"], "eagle3");
    EXPECT_GT(answer["speculation"]["accepted"], 0);
  }
  process.Signal(SIGTERM);
  EXPECT_EQ(process.AwaitEnd(), 0) << process.log();
}

TEST(Serve, FollowsOptionsForUnknownFieldsAndMetricNames) {
  const std::string body = R"({"prompt": "A", "no_such_field": 1, "max_tokens": 1})";
  {
    ServeProcess process;
    const int port = process.AwaitPort();
    ASSERT_NE(port, 0) << process.log();
    const Answer answer = Client(port).Ask("POST", "/v1/completions", body, "X-Request-Id: a1\r\n");
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.headers.at("x-tandem-ignored-fields"), "no_such_field");
    EXPECT_EQ(answer.json()["system_fingerprint"].get<std::string>().substr(0, 3), "fp_");
    EXPECT_EQ(Client(port).Ask("POST", "/v1/completions", body).status, 200);
    const std::string metrics = Client(port).Ask("GET", "/metrics").body;
    EXPECT_THAT(metrics, HasSubstr("tandem_num_requests_running"));
    EXPECT_THAT(metrics, HasSubstr("vllm:num_requests_running{engine=\"0\",model_name=\"story\"}"));
    process.Signal(SIGTERM);
    EXPECT_EQ(process.AwaitEnd(), 0);
    const std::string log = process.log();
    EXPECT_THAT(log, HasSubstr(" id=a1 method=POST"));
    const size_t said = log.find("ignored field=no_such_field");
    ASSERT_NE(said, std::string::npos);
    EXPECT_EQ(log.find("ignored field=no_such_field", said + 1), std::string::npos);
  }
  ServeProcess process({"--strict-requests", "--metrics-names", "vllm"});
  const int port = process.AwaitPort();
  ASSERT_NE(port, 0) << process.log();
  EXPECT_EQ(Client(port).Ask("POST", "/v1/completions", body).error("param"), "no_such_field");
  EXPECT_THAT(Client(port).Ask("GET", "/metrics").body,
              ::testing::Not(HasSubstr("tandem_num_requests_running")));
  EXPECT_THAT(Refusal({"--metrics-names", "prometheus"}), HasSubstr("--metrics-names"));
  EXPECT_THAT(Refusal({"--generation-config", "x"}), HasSubstr("--generation-config"));
}

TEST(Serve, ReadsItsKeyFromAFileOrTheEnvironment) {
  const TestFolder folder;
  const std::string file = folder.Write("key", "of-the-file\n");
  setenv("TANDEM_API_KEY", "of-the-environment", 1);
  const struct {
    std::vector<std::string> arguments;
    const char* key;
  } cases[] = {{{}, "of-the-environment"},
               {{"--api-key-file", file}, "of-the-file"},
               {{"--api-key", "of-the-option"}, "of-the-option"}};
  for (const auto& c : cases) {
    ServeProcess process(c.arguments);
    const int port = process.AwaitPort();
    ASSERT_NE(port, 0) << process.log();
    EXPECT_EQ(Client(port).Ask("GET", "/v1/models").status, 401) << c.key;
    const std::string header = absl::StrCat("Authorization: Bearer ", c.key, "\r\n");
    EXPECT_EQ(Client(port).Ask("GET", "/v1/models", "", header).status, 200) << c.key;
  }
  unsetenv("TANDEM_API_KEY");
  std::filesystem::remove(file);
}

// An empty key is an error. To serve without a key, leave the option out.
TEST(Serve, RefusesKeysThatCannotBeSent) {
  const TestFolder folder;
  const std::string file = folder.Path("key");
  for (const std::string& text : {std::string(), std::string("\n"), std::string(" \r\n")}) {
    std::ofstream(file) << text;
    EXPECT_THAT(Refusal({"--api-key-file", file}), HasSubstr(file + ": the key is empty"));
  }
  std::ofstream(file) << "two\nlines\n";
  EXPECT_THAT(Refusal({"--api-key-file", file}), HasSubstr("visible ASCII"));
  std::ofstream(file) << std::string(2000, 'x');
  EXPECT_THAT(Refusal({"--api-key-file", file}), HasSubstr("at most 1000"));
  std::filesystem::remove(file);
  EXPECT_THAT(Refusal({"--api-key-file", file}), HasSubstr("cannot read " + file));
  EXPECT_THAT(Refusal({"--api-key", ""}), HasSubstr("--api-key: the key is empty"));
  EXPECT_THAT(Refusal({"--api-key", "a b"}), HasSubstr("--api-key: the key has 3 bytes"));
  EXPECT_THAT(Refusal({"--api-key", "a", "--api-key-file", file}), HasSubstr("excludes"));
  setenv("TANDEM_API_KEY", "", 1);
  EXPECT_THAT(Refusal({}), HasSubstr("TANDEM_API_KEY: the key is empty"));
  unsetenv("TANDEM_API_KEY");
  EXPECT_THAT(Refusal({"--allowed-hosts", "a,b:80"}), HasSubstr("--allowed-hosts: \"b:80\""));
  EXPECT_THAT(Refusal({"--cors-origins", "a"}), HasSubstr("--cors-origins: \"a\""));
}

}  // namespace
}  // namespace tandem
