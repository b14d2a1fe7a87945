#ifndef TANDEM_TOOLS_BENCH_MEASURING_H_
#define TANDEM_TOOLS_BENCH_MEASURING_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "base/machine_load.h"
#include "tools/interrupt_flag.h"
#include "tools/status_line.h"

namespace tandem {

// A benchmark that runs. It prints results as they come; Ctrl-C cuts it short, and a second one
// ends the program. While nothing was printed for a second, a status line says what is being
// measured. Only one may exist at a time. Thread-compatible.
class Measuring {
 public:
  Measuring() { StartLine(); }

  // Begins part `part` of `num_parts`, which counts its own steps.
  void BeginPart(int part, int num_parts);
  // Adds steps to the number that is expected.
  void Expect(int64_t steps);
  // Says what is done from now on: "measuring rms_norm". Returns Interrupted() after Ctrl-C, and
  // the error of an earlier Print; then the benchmark must stop.
  absl::Status Begin(std::string what);
  // The same for the next of the expected steps.
  absl::Status BeginNext(std::string what);
  // The errors of Begin.
  absl::Status status() const;

  // The load by other programs since the benchmark began.
  OtherLoad load() const { return load_.Read(); }

  // Writes results to standard output, in place of the line. Does nothing after an error.
  absl::Status Print(std::string_view text);

 private:
  void StartLine();
  std::string Text() const;

  const InterruptFlag interrupt_{InterruptFlag::Second::kEndsTheProgram};
  const LoadWatch load_;
  absl::Status printed_;
  mutable absl::Mutex mutex_;
  std::string part_ ABSL_GUARDED_BY(mutex_);  // "1 of 3: ", or empty
  std::string what_ ABSL_GUARDED_BY(mutex_);
  int64_t num_begun_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t num_expected_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<StatusLine> line_;  // last: it uses all of the above
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_MEASURING_H_
