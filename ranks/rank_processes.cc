#include "ranks/rank_processes.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/instant.h"

extern char** environ;

namespace tandem {
namespace {

constexpr absl::Duration kGrace = absl::Seconds(3);  // to unmap models and end

int OpenProcess(pid_t process) { return static_cast<int>(syscall(SYS_pidfd_open, process, 0)); }

std::string HowItEnded(int status) {
  if (WIFSIGNALED(status)) {
    return absl::StrCat("was ended by signal ", WTERMSIG(status), " (", strsignal(WTERMSIG(status)),
                        ")");
  }
  return absl::StrCat("ended with status ", WEXITSTATUS(status));
}

class Children final : public RankProcesses {
 public:
  struct Child {
    int rank = 0;
    pid_t process = -1;
    int descriptor = -1;  // of the process; -1 after it was waited for
  };

  explicit Children(std::function<void(const absl::Status&)> on_end)
      : on_end_(std::move(on_end)), stop_(eventfd(0, EFD_CLOEXEC)) {}
  ~Children() override {
    const uint64_t one = 1;
    if (write(stop_, &one, sizeof(one)) < 0) { /* it is set already */
    }
    if (watcher_.joinable()) watcher_.join();
    const Instant deadline = Instant::Now() + kGrace;
    for (Child& child : children_) {
      if (child.descriptor < 0) continue;
      pollfd ends{.fd = child.descriptor, .events = POLLIN, .revents = 0};
      const auto left = absl::ToInt64Milliseconds(deadline - Instant::Now());
      if (poll(&ends, 1, static_cast<int>(std::max<int64_t>(left, 0))) <= 0) {
        kill(child.process, SIGKILL);
      }
      Reap(&child);
    }
    close(stop_);
  }

  absl::Status Add(const std::string& program, std::vector<std::string> words, int rank,
                   int descriptor) {
    words.insert(words.begin(), program);
    words.push_back(absl::StrCat(rank));
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&files, descriptor, kRankDescriptor);
    Child child{.rank = rank, .process = -1, .descriptor = -1};
    const int error =
        posix_spawnp(&child.process, program.c_str(), &files, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&files);
    if (error != 0) {
      return absl::ErrnoToStatus(error,
                                 absl::StrCat("tensor_parallel: ", program, " for rank ", rank));
    }
    child.descriptor = OpenProcess(child.process);
    children_.push_back(child);
    if (child.descriptor >= 0) return absl::OkStatus();
    return absl::ErrnoToStatus(errno, "tensor_parallel: pidfd_open");
  }

  void Watch() {
    watcher_ = std::thread([this] {
      std::vector<pollfd> ends;
      for (;;) {
        ends.assign(1, {.fd = stop_, .events = POLLIN, .revents = 0});
        for (const Child& child : children_) {
          ends.push_back({.fd = child.descriptor, .events = POLLIN, .revents = 0});
        }
        if (poll(ends.data(), ends.size(), -1) < 0) continue;
        if (ends[0].revents != 0) return;
        for (size_t i = 0; i < children_.size(); ++i) {
          if (ends[i + 1].revents == 0) continue;
          const int rank = children_[i].rank;
          on_end_(absl::UnavailableError(
              absl::StrCat("tensor_parallel: rank ", rank, " ", HowItEnded(Reap(&children_[i])))));
        }
      }
    });
  }

 private:
  static int Reap(Child* child) {
    int status = 0;
    while (waitpid(child->process, &status, 0) < 0 && errno == EINTR) {
    }
    close(child->descriptor);
    child->descriptor = -1;
    return status;
  }

  const std::function<void(const absl::Status&)> on_end_;
  const int stop_;
  std::vector<Child> children_;  // constant while they are watched, but for `descriptor`
  std::thread watcher_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RankProcesses>> RankProcesses::Start(
    const std::string& program, const std::vector<std::string>& arguments,
    const SharedMemory& memory, std::function<void(const absl::Status&)> on_end) {
  auto children = std::make_unique<Children>(std::move(on_end));
  for (int rank = 1; rank < memory.world(); ++rank) {
    const absl::Status status = children->Add(program, arguments, rank, memory.descriptor());
    if (!status.ok()) return status;
  }
  children->Watch();
  return children;
}

void EndWithParent() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) std::signal(number, SIG_IGN);
  const pid_t parent = getppid();
  const int descriptor = OpenProcess(parent);
  if (descriptor < 0 || getppid() != parent) _exit(1);
  std::thread([descriptor] {
    pollfd ends{.fd = descriptor, .events = POLLIN, .revents = 0};
    while (poll(&ends, 1, -1) <= 0) {
    }
    _exit(1);
  }).detach();
}

std::string OwnProgram() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string name = program.filename();
  return !error && name == "tandem" ? program.string() : "tandem";
}

}  // namespace tandem
