#ifndef TANDEM_TOOLS_BACKGROUND_LOG_H_
#define TANDEM_TOOLS_BACKGROUND_LOG_H_

#include <cstddef>
#include <memory>

#include "absl/time/time.h"
#include "spdlog/async.h"

namespace tandem {

// While one exists, the logger "tandem" makes nobody wait: lines go to a queue, and a thread writes
// them to a descriptor as fast as that takes them. Where it does not, the oldest lines make room,
// and a line says how many were lost once it does. A reader that is gone hears nothing.
//
// To be made by the thread whose blocked signals its thread shall block, too.
class BackgroundLog {
 public:
  struct Limits {
    size_t max_lines = 4096;  // that wait
    // How long the end waits for somebody who reads nothing at all.
    absl::Duration patience = absl::Seconds(1);
  };
  BackgroundLog(int descriptor, const Limits& limits);
  // What waits is written before it returns, as long as somebody reads it.
  ~BackgroundLog();
  BackgroundLog(const BackgroundLog&) = delete;
  BackgroundLog& operator=(const BackgroundLog&) = delete;

 private:
  class Sink;

  std::shared_ptr<spdlog::logger> before_;
  std::shared_ptr<spdlog::details::thread_pool> queue_;  // and its thread
  std::shared_ptr<Sink> sink_;                           // loggers may outlive this
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_BACKGROUND_LOG_H_
