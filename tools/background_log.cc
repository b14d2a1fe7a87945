#include "tools/background_log.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "base/instant.h"
#include "spdlog/sinks/base_sink.h"
#include "spdlog/spdlog.h"

namespace tandem {
namespace {

constexpr char kLogger[] = "tandem";
// How often a thread that cannot write looks whether it shall end.
constexpr int kStepMilliseconds = 20;

void UseSink(std::shared_ptr<spdlog::sinks::sink> sink, spdlog::level::level_enum level) {
  auto logger = std::make_shared<spdlog::logger>(kLogger, std::move(sink));
  logger->set_level(level);
  // It would write to standard error itself.
  logger->set_error_handler([](const std::string&) {});
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace

class BackgroundLog::Sink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  Sink(int descriptor, const Limits& limits)
      : descriptor_(descriptor), limits_(limits), before_(spdlog::default_logger()) {
    thread_ = std::thread([this] { Run(); });
  }

  const std::shared_ptr<spdlog::logger>& before() const { return before_; }

  void End() {
    is_over_ = true;
    {
      const absl::MutexLock lock(&mutex_);
      wants_end_ = true;
    }
    thread_.join();
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    std::string line = Formatted(message);
    const absl::MutexLock lock(&mutex_);
    if (wants_end_) return;
    waiting_bytes_ += line.size();
    waiting_.push_back(std::move(line));
    while (waiting_bytes_ > limits_.max_bytes) {
      waiting_bytes_ -= waiting_.front().size();
      waiting_.pop_front();
      ++num_lost_;
    }
  }
  void flush_() override {}

 private:
  std::string Formatted(const spdlog::details::log_msg& message) {
    spdlog::memory_buf_t buffer;
    formatter_->format(message, buffer);
    return {buffer.data(), buffer.size()};
  }

  bool HasWork() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return wants_end_ || !waiting_.empty();
  }

  // Until the end, and nothing waits or nobody reads.
  void Run() {
    int64_t num_said = 0;
    std::string text;
    do {
      int64_t num_lost = 0;
      {
        const absl::MutexLock lock(&mutex_);
        mutex_.Await(absl::Condition(this, &Sink::HasWork));
        if (waiting_.empty()) return;
        text = std::move(waiting_.front());
        waiting_.pop_front();
        waiting_bytes_ -= text.size();
        num_lost = num_lost_;
      }
      if (num_lost > num_said) {
        text = LossLine(num_lost - std::exchange(num_said, num_lost)) + text;
      }
    } while (Write(text));
  }

  std::string LossLine(int64_t num_lost) {
    const std::string text =
        absl::StrCat("log lines_lost=", num_lost, " reason=\"nobody read it\"");
    const std::lock_guard<std::mutex> lock(base_sink::mutex_);  // of the formatter
    return Formatted(spdlog::details::log_msg(kLogger, spdlog::level::warn, text));
  }

  // False if nobody reads it at the end. What cannot be written at all is gone.
  bool Write(absl::string_view text) {
    Instant last_written = Instant::Now();
    while (!text.empty()) {
      pollfd wanted = {.fd = descriptor_, .events = POLLOUT, .revents = 0};
      const int num_ready = poll(&wanted, 1, kStepMilliseconds);
      if (num_ready < 0 && errno != EINTR) return true;
      if (num_ready <= 0) {
        if (is_over_ && Instant::Now() - last_written > limits_.patience) return false;
        continue;
      }
      // Of a pipe that is ready this much does not wait.
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
  const Limits limits_;
  const std::shared_ptr<spdlog::logger> before_;
  std::atomic<bool> is_over_ = false;
  absl::Mutex mutex_;
  std::deque<std::string> waiting_ ABSL_GUARDED_BY(mutex_);
  size_t waiting_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t num_lost_ ABSL_GUARDED_BY(mutex_) = 0;
  bool wants_end_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses all of the above
};

BackgroundLog::BackgroundLog(int descriptor, const Limits& limits)
    : sink_(std::make_shared<Sink>(descriptor, limits)) {
  UseSink(sink_, sink_->before()->level());
}

BackgroundLog::~BackgroundLog() {
  sink_->End();
  spdlog::set_default_logger(sink_->before());
}

}  // namespace tandem
