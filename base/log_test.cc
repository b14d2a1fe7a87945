#include "base/log.h"

#include <sstream>

#include "gtest/gtest.h"
#include "spdlog/sinks/ostream_sink.h"
#include "spdlog/spdlog.h"

namespace tandem {
namespace {

// Texts of clients must not look like other lines, or control a terminal.
TEST(Log, WritesOneLineWithoutControlCharacters) {
  using std::string_view_literals::operator""sv;
  std::ostringstream text;
  auto logger = std::make_shared<spdlog::logger>(
      "tandem", std::make_shared<spdlog::sinks::ostream_sink_mt>(text));
  logger->set_pattern("%v");
  spdlog::register_logger(logger);
  Log(LogLevel::kWarning,
      "id=a\nb\r\t\0\x1b[2J\x7f \xc2\x9b\xff\xe2\x82 \"\\ \xc3\xa4\xe2\x82\xac"sv);
  spdlog::drop("tandem");
  EXPECT_EQ(
      text.str(),
      "id=a\\nb\\r\\t\\x00\\x1b[2J\\x7f \\xc2\\x9b\\xff\\xe2\\x82 \"\\ \xc3\xa4\xe2\x82\xac\n");
}

TEST(Log, WritesOnlyToTheRegisteredLogger) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Log(LogLevel::kError, "unheard, before");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  std::ostringstream text;
  spdlog::register_logger(std::make_shared<spdlog::logger>(
      "tandem", std::make_shared<spdlog::sinks::ostream_sink_mt>(text)));
  Log(LogLevel::kWarning, "tokens={5}");
  spdlog::drop("tandem");
  Log(LogLevel::kError, "unheard, after");
  EXPECT_NE(text.str().find("[warning] tokens={5}"), std::string::npos);
  EXPECT_EQ(text.str().find("unheard"), std::string::npos);
}

}  // namespace
}  // namespace tandem
