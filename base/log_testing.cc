#include "base/log_testing.h"

#include <memory>
#include <sstream>
#include <string>

#include "spdlog/sinks/ostream_sink.h"
#include "spdlog/spdlog.h"

namespace tandem {

struct LogCapture::Loggers {
  std::ostringstream text;
  std::shared_ptr<spdlog::logger> before = spdlog::get("tandem");
};

LogCapture::LogCapture() : loggers_(std::make_unique<Loggers>()) {
  auto logger = std::make_shared<spdlog::logger>(
      "tandem", std::make_shared<spdlog::sinks::ostream_sink_mt>(loggers_->text));
  logger->set_pattern("%l %v");
  spdlog::drop("tandem");
  spdlog::register_logger(std::move(logger));
}

LogCapture::~LogCapture() {
  spdlog::drop("tandem");
  if (loggers_->before != nullptr) spdlog::register_logger(loggers_->before);
}

std::string LogCapture::text() const { return loggers_->text.str(); }

void LogCapture::Clear() { loggers_->text.str(""); }

}  // namespace tandem
