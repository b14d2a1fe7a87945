#include "tools/status_line.h"

#include <poll.h>
#include <pty.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <utility>

#include "base/check.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/standard_streams.h"

namespace tandem {
namespace {

using testing::EndsWith;

constexpr char kErased[] = "\r\x1b[K";

// Standard error is a terminal, or a pipe, while an object of this class exists.
class CapturedErrors {
 public:
  explicit CapturedErrors(bool is_terminal) : before_(dup(STDERR_FILENO)) {
    int ends[2];
    TANDEM_CHECK(
        (is_terminal ? openpty(&ends[0], &ends[1], nullptr, nullptr, nullptr) : pipe(ends)) == 0);
    reader_ = ends[0];
    TANDEM_CHECK(dup2(ends[1], STDERR_FILENO) >= 0);
    close(ends[1]);
  }
  ~CapturedErrors() {
    dup2(before_, STDERR_FILENO);
    close(before_);
    close(reader_);
  }
  CapturedErrors(const CapturedErrors&) = delete;
  CapturedErrors& operator=(const CapturedErrors&) = delete;

  // Reads until this text appears after what was read before.
  void Await(const std::string& text) {
    while (seen_.find(text) == std::string::npos) ReadMore();
    seen_.erase(0, seen_.find(text) + text.size());
  }
  // Reads and returns what has been written since.
  std::string Rest() {
    pollfd readable{.fd = reader_, .events = POLLIN, .revents = 0};
    while (poll(&readable, 1, /*timeout=*/0) > 0) ReadMore();
    return std::exchange(seen_, "");
  }

 private:
  void ReadMore() {
    char bytes[1000];
    const ssize_t size = read(reader_, bytes, sizeof(bytes));
    TANDEM_CHECK(size > 0);
    seen_.append(bytes, static_cast<size_t>(size));
  }

  int before_;
  int reader_ = -1;
  std::string seen_;
};

class StatusLineTest : public testing::Test {
 protected:
  StatusLineTest() { setenv("TERM", "xterm", /*overwrite=*/1); }

  FakeClock clock_;
  CapturedErrors errors_{/*is_terminal=*/true};
};

TEST_F(StatusLineTest, AppearsOnceTheJobHasTakenLong) {
  std::atomic<int> step = 1;
  StatusLine line(absl::Seconds(1), [&step] { return "step " + std::to_string(step); });
  clock_.Advance(absl::Seconds(1));
  errors_.Await("\r\x1b[K\x1b[?7lstep 1\x1b[?7h\r");
  step = 2;
  errors_.Await("step 2\x1b[?7h\r");
  line.End();
  EXPECT_EQ(errors_.Rest(), kErased);
  line.End();
  EXPECT_EQ(errors_.Rest(), "");
}

TEST_F(StatusLineTest, DoesNotAppearForQuickJobs) {
  {
    const StatusLine line(absl::Seconds(1), [] { return "working"; });
    clock_.Advance(absl::Milliseconds(999));
  }
  EXPECT_EQ(errors_.Rest(), "");
}

TEST_F(StatusLineTest, TheNewestIsShown) {
  const StatusLine outer(absl::Seconds(1), [] { return "outer"; });
  clock_.Advance(absl::Seconds(1));
  errors_.Await("outer");
  {
    const StatusLine inner(absl::Seconds(1), [] { return "inner"; });
    clock_.Advance(absl::Seconds(1));
    errors_.Await("inner");
  }
  errors_.Await(kErased);
  errors_.Await("outer");
}

TEST_F(StatusLineTest, AppearsOnlyOnATerminal) {
  const auto shown = [&] {
    bool was_asked = false;
    {
      const StatusLine line(absl::ZeroDuration(), [&] {
        was_asked = true;
        return "working";
      });
      clock_.Advance(absl::Seconds(9));
    }
    EXPECT_FALSE(was_asked);
    return StatusLine::IsPossible();
  };
  {
    CapturedErrors pipe(/*is_terminal=*/false);
    EXPECT_FALSE(shown());
    EXPECT_EQ(pipe.Rest(), "");
  }
  setenv("TERM", "dumb", /*overwrite=*/1);
  EXPECT_FALSE(shown());
  EXPECT_EQ(errors_.Rest(), "");
}

TEST_F(StatusLineTest, ProgressShowsTheShareDone) {
  Progress progress("packing", 200);
  clock_.Advance(absl::Seconds(3));
  errors_.Await("packing [                              ] 0 %\x1b");
  progress.AdvanceTo(50);
  errors_.Await("packing [#######                       ] 25 %, 9 s left\x1b");
  progress.Advance(950);
  errors_.Await("] 100 %, 0 s left\x1b");
}

TEST_F(StatusLineTest, WaitingLinesCountSeconds) {
  const WaitingLine line("loading a\nb");
  clock_.Advance(absl::Milliseconds(2500));
  errors_.Await("loading a\\nb, 2 s\x1b");
  clock_.Advance(absl::Seconds(1));
  errors_.Await("loading a\\nb, 3 s\x1b");
}

// ---- The line of a prompt ----

Piece ReadTo(int processed, absl::Duration time, int cached = 0) {
  return {.text = "",
          .token_ids = {},
          .provenance = "",
          .prompt_progress = PromptProgress{
              .total = 4096, .cached = cached, .processed = processed, .time = time}};
}

TEST_F(StatusLineTest, PromptsShowTokensAndTheirRate) {
  PromptStatusLine line;
  clock_.Advance(absl::Milliseconds(499));
  EXPECT_EQ(errors_.Rest(), "");
  clock_.Advance(absl::Milliseconds(1));
  errors_.Await("reading the prompt\x1b");
  line.OnPiece(ReadTo(24, absl::Seconds(1), 24));
  errors_.Await("reading the prompt: 24 of 4,096 tokens\x1b");
  line.OnPiece(ReadTo(1024, absl::Seconds(5), 24));
  errors_.Await("reading the prompt: 1,024 of 4,096 tokens, 250 tokens/s\x1b");
  line.OnPiece(ReadTo(500, absl::Seconds(6), 24));  // it was preempted
  errors_.Await("reading the prompt: 500 of 4,096 tokens\x1b");
  line.OnPiece(ReadTo(600, absl::Seconds(7), 24));
  errors_.Await("reading the prompt: 600 of 4,096 tokens, 100 tokens/s\x1b");
  Piece first = ReadTo(4096, absl::Seconds(9));
  first.text = "Once";
  line.OnPiece(first);
  EXPECT_THAT(errors_.Rest(), EndsWith(kErased));
  line.OnPiece(first);
  line.End();
  EXPECT_EQ(errors_.Rest(), "");
}

TEST_F(StatusLineTest, PromptsThatAreReadAtOnceShowNothing) {
  PromptStatusLine line;
  line.OnPiece(ReadTo(0, absl::Milliseconds(1)));
  Piece first = ReadTo(4096, absl::Milliseconds(400));
  first.text = "Once";
  line.OnPiece(first);
  clock_.Advance(absl::Seconds(9));
  line.OnPiece({.text = " upon", .token_ids = {}, .provenance = ""});
  EXPECT_EQ(errors_.Rest(), "");
}

}  // namespace
}  // namespace tandem
