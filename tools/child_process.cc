#include "tools/child_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

extern char** environ;

namespace tandem {
namespace {

constexpr size_t kMostKept = 1 << 16;  // bytes of what the child says, the last

// Ctrl-C and Ctrl-\ go to everything in the foreground; here they are for the child alone.
class SignalsAreForTheChild {
 public:
  SignalsAreForTheChild()
      : interrupt_(std::signal(SIGINT, SIG_IGN)), quit_(std::signal(SIGQUIT, SIG_IGN)) {}
  ~SignalsAreForTheChild() {
    std::signal(SIGINT, interrupt_);
    std::signal(SIGQUIT, quit_);
  }
  SignalsAreForTheChild(const SignalsAreForTheChild&) = delete;
  SignalsAreForTheChild& operator=(const SignalsAreForTheChild&) = delete;

 private:
  void (*interrupt_)(int);
  void (*quit_)(int);
};

int Spawn(const std::vector<std::string>& words, const std::string& folder, bool shows_output,
          int err, pid_t* process) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addchdir_np(&files, folder.c_str());
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  if (shows_output) {
    posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
  } else {
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  }
  posix_spawn_file_actions_adddup2(&files, err, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t defaults;
  sigemptyset(&defaults);
  for (const int signal : {SIGINT, SIGQUIT, SIGPIPE, SIGXFSZ}) sigaddset(&defaults, signal);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const int error = posix_spawnp(process, argv[0], &files, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return error;
}

// The end of what comes, until the other side is closed.
std::string ReadEnd(int descriptor) {
  std::string text;
  char bytes[4096];
  for (;;) {
    const ssize_t size = read(descriptor, bytes, sizeof(bytes));
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return text;
    text.append(bytes, static_cast<size_t>(size));
    if (text.size() > 2 * kMostKept) text.erase(0, text.size() - kMostKept);
  }
}

std::string LastLine(const std::string& text) {
  std::string last;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const absl::string_view words = absl::StripAsciiWhitespace(line);
    if (!words.empty()) last = std::string(words);
  }
  return last;
}

}  // namespace

absl::StatusOr<ChildEnd> RunChild(const std::vector<std::string>& words, const std::string& folder,
                                  bool shows_output) {
  int err[2];  // read, write
  if (pipe2(err, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "cannot make a pipe");
  const SignalsAreForTheChild signals;
  pid_t process = 0;
  const int error = Spawn(words, folder, shows_output, err[1], &process);
  close(err[1]);
  if (error != 0) {
    close(err[0]);
    return absl::ErrnoToStatus(error, absl::StrCat("cannot run ", words[0]));
  }
  ChildEnd end;
  end.last_words = LastLine(ReadEnd(err[0]));
  close(err[0]);
  int status = 0;
  while (waitpid(process, &status, 0) < 0) {
    if (errno != EINTR) return absl::ErrnoToStatus(errno, absl::StrCat("cannot await ", words[0]));
  }
  if (WIFEXITED(status)) end.exit_status = WEXITSTATUS(status);
  return end;
}

}  // namespace tandem
