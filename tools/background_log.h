#ifndef TANDEM_TOOLS_BACKGROUND_LOG_H_
#define TANDEM_TOOLS_BACKGROUND_LOG_H_

#include <cstddef>
#include <memory>

#include "absl/time/time.h"
#include "spdlog/async.h"

namespace tandem {

// While one exists, threads that use the logger "tandem" never block: lines go to a queue, and a
// thread writes them to a descriptor. If the queue is full, the oldest lines are dropped, and a
// later line says how many were lost. If the reader has closed its end, all lines are dropped.
//
// The writing thread inherits the signal mask of the thread that creates this object.
class BackgroundLog {
 public:
  struct Limits {
    size_t max_lines = 4096;  // in the queue
    // How long the destructor waits for a reader that reads nothing.
    absl::Duration patience = absl::Seconds(1);
  };
  BackgroundLog(int descriptor, const Limits& limits);
  // Writes the queued lines before it returns, unless the reader stalls for `patience`.
  ~BackgroundLog();
  BackgroundLog(const BackgroundLog&) = delete;
  BackgroundLog& operator=(const BackgroundLog&) = delete;

 private:
  class Sink;

  std::shared_ptr<spdlog::logger> before_;               // the default logger, to restore
  std::shared_ptr<spdlog::details::thread_pool> queue_;  // and its thread
  std::shared_ptr<Sink> sink_;                           // loggers may outlive this object
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_BACKGROUND_LOG_H_
