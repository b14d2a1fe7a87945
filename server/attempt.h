// The root of what a thread runs: no request may end the process.
#ifndef TANDEM_SERVER_ATTEMPT_H_
#define TANDEM_SERVER_ATTEMPT_H_

#include <exception>
#include <utility>

namespace tandem {

// Says in the log that `what` failed, if there is memory left to say it.
void LogException(const char* what, const std::exception& error);

// Runs `work`. False if a library throws in it, for want of memory mostly; then the log says so.
template <typename Work>
bool Attempt(const char* what, Work&& work) {
  try {
    std::forward<Work>(work)();
    return true;
  } catch (const std::exception& error) {
    LogException(what, error);
    return false;
  }
}

}  // namespace tandem

#endif  // TANDEM_SERVER_ATTEMPT_H_
