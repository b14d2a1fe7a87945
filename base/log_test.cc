#include "base/log.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "base/log_testing.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

// Texts of clients must not look like other lines, or control a terminal.
TEST(Log, WritesOneLineWithoutControlCharacters) {
  using std::string_view_literals::operator""sv;
  const LogCapture log;
  Log(LogLevel::kWarning,
      "id=a\nb\r\t\0\x1b[2J\x7f \xc2\x9b\xff\xe2\x82 \"\\ \xc3\xa4\xe2\x82\xac"sv);
  EXPECT_EQ(log.text(),
            "warning id=a\\nb\\r\\t\\x00\\x1b[2J\\x7f \\xc2\\x9b\\xff\\xe2\\x82 \"\\ "
            "\xc3\xa4\xe2\x82\xac\n");
}

TEST(Log, WritesOnlyToTheRegisteredLogger) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Log(LogLevel::kError, "unheard, before");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  std::string text;
  {
    const LogCapture log;
    Log(LogLevel::kWarning, "tokens={5}");
    text = log.text();
    const LogCapture inner;
    Log(LogLevel::kInfo, "within");
    EXPECT_EQ(inner.text(), "info within\n");
    EXPECT_EQ(log.text(), text);
  }
  Log(LogLevel::kError, "unheard, after");
  EXPECT_EQ(text, "warning tokens={5}\n");
}

TEST(Log, OtherThreadsMayWriteWhileATestReads) {
  auto log = std::make_unique<LogCapture>();
  std::atomic<bool> is_over = false;
  std::thread writes([&] {
    while (!is_over) Log(LogLevel::kInfo, "another line");
  });
  for (int i = 0; i < 30; ++i) {
    while (!absl::EndsWith(log->text(), "info another line\n")) std::this_thread::yield();
    log->Clear();
  }
  log.reset();
  is_over = true;
  writes.join();
}

}  // namespace
}  // namespace tandem
