#ifndef TANDEM_SERVER_ADMISSION_H_
#define TANDEM_SERVER_ADMISSION_H_

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tandem {

// How many sequences are with the engine, and whether more may come. Thread-safe.
class Admission {
 public:
  explicit Admission(int capacity) : capacity_(capacity) {}

  // Lets `count` sequences in. RESOURCE_EXHAUSTED if they are too many beside those that are in,
  // UNAVAILABLE after Close(); then none is in.
  absl::Status Enter(int count);
  void Leave(int count);
  void Close();

  int capacity() const { return capacity_; }
  int num_inside() const;
  bool is_closed() const;
  // True when nobody is inside, false if `timeout` passes before.
  bool AwaitEmpty(absl::Duration timeout) const;

 private:
  const int capacity_;
  mutable absl::Mutex mutex_;
  int num_inside_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace tandem

#endif  // TANDEM_SERVER_ADMISSION_H_
