#include "base/log_testing.h"

#include <memory>
#include <mutex>
#include <string>

#include "spdlog/sinks/base_sink.h"
#include "spdlog/spdlog.h"

namespace tandem {

// Other threads may still write a line while the text is read, and after the capture has ended.
class LogCapture::Sink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  std::string text() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return text_;
  }
  void Clear() {
    const std::lock_guard<std::mutex> lock(mutex_);
    text_.clear();
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    text_.append(line.data(), line.size());
  }
  void flush_() override {}

 private:
  std::string text_;
};

// A thread that logs may drop the last reference to the logger. spdlog's library is not built with
// the thread sanitizer, which therefore misses that count and reports a race. So `own` is dropped
// after the registry's reference, and `sink` is not counted.
struct LogCapture::Loggers {
  Sink* const sink = new Sink;  // owned by `own`
  const std::shared_ptr<spdlog::logger> own =
      std::make_shared<spdlog::logger>("tandem", spdlog::sink_ptr(sink));
  const std::shared_ptr<spdlog::logger> before = spdlog::get("tandem");
};

LogCapture::LogCapture() : loggers_(std::make_unique<Loggers>()) {
  loggers_->own->set_pattern("%l %v");
  spdlog::drop("tandem");
  spdlog::register_logger(loggers_->own);
}

LogCapture::~LogCapture() {
  spdlog::drop("tandem");
  if (loggers_->before != nullptr) spdlog::register_logger(loggers_->before);
}

std::string LogCapture::text() const { return loggers_->sink->text(); }

void LogCapture::Clear() { loggers_->sink->Clear(); }

}  // namespace tandem
