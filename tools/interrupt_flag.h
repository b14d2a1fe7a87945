#ifndef TANDEM_TOOLS_INTERRUPT_FLAG_H_
#define TANDEM_TOOLS_INTERRUPT_FLAG_H_

#include "absl/status/status.h"

namespace tandem {

// While an object of this class exists, Ctrl-C sets a flag instead of ending the program.
class InterruptFlag {
 public:
  // The effect of a second Ctrl-C.
  enum class Second { kNothing, kEndsTheProgram };
  explicit InterruptFlag(Second second);
  ~InterruptFlag();
  InterruptFlag(const InterruptFlag&) = delete;
  InterruptFlag& operator=(const InterruptFlag&) = delete;

  // Whether Ctrl-C was pressed since the newest object was made.
  static bool is_set();

 private:
  void (*before_)(int);
};

// The status of a command that Ctrl-C has cut short after it printed what it had.
absl::Status Interrupted();
bool IsInterrupted(const absl::Status& status);

}  // namespace tandem

#endif  // TANDEM_TOOLS_INTERRUPT_FLAG_H_
