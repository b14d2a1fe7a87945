#ifndef TANDEM_TESTS_TERMINAL_H_
#define TANDEM_TESTS_TERMINAL_H_

#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace tandem {

// The program on its own terminal.
class Terminal {
 public:
  // `program` is its path.
  Terminal(std::string program, const std::vector<std::string>& words,
           const char* variable = "TANDEM_NOTHING=") {
    process_ = forkpty(&terminal_, nullptr, nullptr, nullptr);
    if (process_ != 0) return;
    setenv("TERM", "xterm", 1);
    unsetenv("NO_COLOR");
    putenv(const_cast<char*>(variable));
    std::vector<char*> argv = {program.data()};
    for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    _exit(127);
  }
  ~Terminal() {
    if (process_ > 0) {
      kill(process_, SIGKILL);
      waitpid(process_, nullptr, 0);
    }
    close(terminal_);
  }

  // Reads until this text appears after the texts awaited before. Returns false if the output ends
  // first.
  bool Await(const std::string& text) {
    for (;;) {
      const size_t at = seen_.find(text, awaited_);
      if (at != std::string::npos) {
        awaited_ = at + text.size();
        return true;
      }
      if (!ReadMore()) return false;
    }
  }
  void Type(const std::string& keys) const {
    ASSERT_EQ(write(terminal_, keys.data(), keys.size()), static_cast<ssize_t>(keys.size()));
  }
  // Waits for the program and returns its exit status, or -1 if a signal ended it.
  int AwaitEnd() {
    while (ReadMore()) {
    }
    int status = 0;
    if (!is_closed_) return -1;
    waitpid(process_, &status, 0);
    process_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  const std::string& seen() const { return seen_; }

 private:
  bool ReadMore() {
    pollfd readable{.fd = terminal_, .events = POLLIN, .revents = 0};
    if (poll(&readable, 1, /*timeout=*/-1) <= 0) return false;
    char bytes[4096];
    const ssize_t size = read(terminal_, bytes, sizeof(bytes));
    is_closed_ = size <= 0;
    if (is_closed_) return false;
    seen_.append(bytes, static_cast<size_t>(size));
    return true;
  }

  pid_t process_ = 0;
  int terminal_ = -1;
  std::string seen_;
  size_t awaited_ = 0;
  bool is_closed_ = false;
};

}  // namespace tandem

#endif  // TANDEM_TESTS_TERMINAL_H_
