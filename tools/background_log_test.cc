#include "tools/background_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "spdlog/spdlog.h"

namespace tandem {
namespace {

using testing::HasSubstr;

class Pipe {
 public:
  Pipe() {
    TANDEM_CHECK(pipe2(ends_, O_CLOEXEC) == 0);
    TANDEM_CHECK(fcntl(ends_[1], F_SETPIPE_SZ, 4096) > 0);
  }
  ~Pipe() {
    CloseReader();
    CloseWriter();
  }
  int writer() const { return ends_[1]; }
  void CloseReader() { Close(&ends_[0]); }
  void CloseWriter() { Close(&ends_[1]); }
  // Reads until the write end is closed or at least `most` bytes have been read.
  std::string Read(size_t most = SIZE_MAX) const {
    std::string text;
    char bytes[1000];
    while (text.size() < most) {
      const ssize_t size = read(ends_[0], bytes, sizeof(bytes));
      if (size <= 0) break;
      text.append(bytes, static_cast<size_t>(size));
    }
    return text;
  }

 private:
  static void Close(int* end) {
    if (*end >= 0) close(*end);
    *end = -1;
  }
  int ends_[2] = {-1, -1};
};

void LogLines(int count) {
  for (int i = 0; i < count; ++i) spdlog::info("line number={}", i);
}

std::vector<std::string> LinesOf(const std::string& text) {
  return absl::StrSplit(text, '\n', absl::SkipEmpty());
}

TEST(BackgroundLog, WritesEveryLineToAReaderThatKeepsUp) {
  Pipe pipe;
  std::string text;
  std::thread reader([&] { text = pipe.Read(); });
  {
    const BackgroundLog log(pipe.writer(), {});
    LogLines(1000);
  }
  pipe.CloseWriter();
  reader.join();
  const std::vector<std::string> lines = LinesOf(text);
  ASSERT_EQ(lines.size(), 1000u);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_THAT(lines[i], testing::EndsWith(absl::StrCat(" line number=", i)));
    EXPECT_THAT(lines[i], HasSubstr("[tandem] [info]"));
  }
}

// Row 115 of the bug catalogue.
TEST(BackgroundLog, NeverBlocksTheLoggingThread) {
  Pipe pipe;
  const auto before = spdlog::default_logger();
  {
    const BackgroundLog log(pipe.writer(), {.patience = absl::Milliseconds(10)});
    LogLines(20'000);
  }
  EXPECT_EQ(spdlog::default_logger(), before);
  pipe.CloseWriter();
  EXPECT_THAT(pipe.Read(), HasSubstr("line number="));
}

TEST(BackgroundLog, LogsTheNumberOfLostLines) {
  constexpr int kLines = 20'000;
  Pipe pipe;
  std::string text;
  std::thread reader;
  {
    const BackgroundLog log(pipe.writer(), {.max_lines = 1000, .patience = absl::Hours(1)});
    LogLines(kLines);
    reader = std::thread([&] { text = pipe.Read(); });
  }
  pipe.CloseWriter();
  reader.join();
  int num_lines = 0;
  int num_lost = 0;
  const std::vector<std::string> lines = LinesOf(text);
  for (const std::string& line : lines) {
    const size_t at = line.find("lines_lost=");
    if (at == std::string::npos) {
      ++num_lines;
      continue;
    }
    int count = 0;
    ASSERT_TRUE(absl::SimpleAtoi(line.substr(at + 11, line.find(' ', at) - at - 11), &count));
    num_lost += count;
  }
  EXPECT_GT(num_lost, 0);
  EXPECT_EQ(num_lines + num_lost, kLines);
  EXPECT_THAT(lines.back(), HasSubstr(absl::StrCat("number=", kLines - 1)));
}

TEST(BackgroundLog, OutlivesItsReader) {
  std::signal(SIGPIPE, SIG_IGN);
  Pipe pipe;
  const BackgroundLog log(pipe.writer(), {.patience = absl::Hours(1)});
  pipe.CloseReader();
  LogLines(1000);
}

}  // namespace
}  // namespace tandem
