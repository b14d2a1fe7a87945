#include "tools/interrupt_flag.h"

#include <atomic>
#include <csignal>

#include "absl/strings/cord.h"

namespace tandem {
namespace {

constexpr char kInterrupted[] = "tandem.dev/interrupted";  // a payload

std::atomic<bool> was_interrupted = false;
static_assert(std::atomic<bool>::is_always_lock_free);  // a signal handler sets it

void SetFlag(int /*signal*/) { was_interrupted = true; }

void SetFlagOnce(int signal) {
  was_interrupted = true;
  std::signal(signal, SIG_DFL);
}

}  // namespace

InterruptFlag::InterruptFlag(Second second)
    : before_(std::signal(SIGINT, second == Second::kNothing ? SetFlag : SetFlagOnce)) {
  was_interrupted = false;
}

InterruptFlag::~InterruptFlag() { std::signal(SIGINT, before_); }

bool InterruptFlag::is_set() { return was_interrupted; }

absl::Status Interrupted() {
  absl::Status status = absl::CancelledError("interrupted");
  status.SetPayload(kInterrupted, absl::Cord());
  return status;
}

bool IsInterrupted(const absl::Status& status) {
  return status.GetPayload(kInterrupted).has_value();
}

}  // namespace tandem
