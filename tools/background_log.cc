#include "tools/background_log.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <mutex>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/instant.h"
#include "spdlog/sinks/base_sink.h"
#include "spdlog/spdlog.h"

namespace tandem {
namespace {

constexpr char kLogger[] = "tandem";
// How often a blocked writer checks whether it must stop.
constexpr int kStepMilliseconds = 20;

}  // namespace

// Only the queue's own thread logs here, so the queue outlives every call.
class BackgroundLog::Sink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  Sink(int descriptor, absl::Duration patience, spdlog::details::thread_pool* queue)
      : descriptor_(descriptor), patience_(patience), queue_(queue) {}

  // After this call, Write gives up once the log's reader has read nothing for `patience`.
  void End() { is_over_ = true; }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    if (has_given_up_) return;
    std::string text;
    const size_t num_lost = queue_->overrun_counter();
    if (num_lost > num_said_) {
      const std::string words =
          absl::StrCat("log lines_lost=", num_lost - std::exchange(num_said_, num_lost),
                       " reason=\"the reader is too slow\"");
      text = Formatted({kLogger, spdlog::level::warn, words});
    }
    has_given_up_ = !Write(text + Formatted(message));
  }
  void flush_() override {}

 private:
  std::string Formatted(const spdlog::details::log_msg& message) {
    spdlog::memory_buf_t buffer;
    formatter_->format(message, buffer);
    return {buffer.data(), buffer.size()};
  }

  // Returns false if the log is ending and its reader has stalled. Text that cannot be written, for
  // example because the reader has closed its end, is dropped.
  bool Write(absl::string_view text) {
    Instant last_written = Instant::Now();
    while (!text.empty()) {
      pollfd wanted = {.fd = descriptor_, .events = POLLOUT, .revents = 0};
      const int num_ready = poll(&wanted, 1, kStepMilliseconds);
      if (num_ready < 0 && errno != EINTR) return true;
      if (num_ready <= 0) {
        if (is_over_ && Instant::Now() - last_written > patience_) return false;
        continue;
      }
      // A pipe that polls as writable accepts this many bytes without blocking.
      const size_t size = std::min<size_t>(text.size(), PIPE_BUF);
      const ssize_t num_written = write(descriptor_, text.data(), size);
      if (num_written < 0 && errno != EINTR && errno != EAGAIN) return true;
      if (num_written <= 0) continue;
      text.remove_prefix(static_cast<size_t>(num_written));
      last_written = Instant::Now();
    }
    return true;
  }

  const int descriptor_;
  const absl::Duration patience_;
  spdlog::details::thread_pool* const queue_;
  std::atomic<bool> is_over_ = false;
  bool has_given_up_ = false;
  size_t num_said_ = 0;  // lost lines
};

BackgroundLog::BackgroundLog(int descriptor, const Limits& limits)
    : before_(spdlog::default_logger()),
      queue_(std::make_shared<spdlog::details::thread_pool>(limits.max_lines, 1)),
      sink_(std::make_shared<Sink>(descriptor, limits.patience, queue_.get())) {
  auto logger = std::make_shared<spdlog::async_logger>(
      kLogger, sink_, queue_, spdlog::async_overflow_policy::overrun_oldest);
  logger->set_level(before_->level());
  // The default handler writes to standard error.
  logger->set_error_handler([](const std::string&) {});
  spdlog::set_default_logger(std::move(logger));
}

BackgroundLog::~BackgroundLog() {
  sink_->End();
  spdlog::set_default_logger(before_);
  queue_.reset();  // joins its thread, after it has written the queued lines
}

}  // namespace tandem
