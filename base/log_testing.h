#ifndef TANDEM_BASE_LOG_TESTING_H_
#define TANDEM_BASE_LOG_TESTING_H_

#include <memory>
#include <string>

namespace tandem {

// Collects what Log (log.h) writes while it lives, as lines "<level> <line>". A logger that was
// registered before is restored. Other threads may log at any time, even after the end of this
// object.
//
// Tests use it in place of spdlog, because a file that includes spdlog without the definitions that
// its library was compiled with may have a registry of its own.
class LogCapture {
 public:
  LogCapture();
  ~LogCapture();
  LogCapture(const LogCapture&) = delete;
  LogCapture& operator=(const LogCapture&) = delete;

  std::string text() const;
  void Clear();

 private:
  class Sink;
  struct Loggers;
  std::unique_ptr<Loggers> loggers_;
};

}  // namespace tandem

#endif  // TANDEM_BASE_LOG_TESTING_H_
