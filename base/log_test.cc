#include "base/log.h"

#include <sstream>

#include "gtest/gtest.h"
#include "spdlog/sinks/ostream_sink.h"
#include "spdlog/spdlog.h"

namespace tandem {
namespace {

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
