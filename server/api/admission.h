#ifndef TANDEM_SERVER_API_ADMISSION_H_
#define TANDEM_SERVER_API_ADMISSION_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tandem {

// Counts the sequences that the engine has, and decides whether more are admitted. Thread-safe.
class Admission {
 public:
  struct Leaving {
    void operator()(Admission* admission) const { admission->Leave(); }
  };
  // One sequence's place, released when it is destroyed. The Admission must outlive it.
  using Place = std::unique_ptr<Admission, Leaving>;

  explicit Admission(int capacity) : capacity_(capacity) {}

  // Admits the `count` sequences of a request, all or none. A request with several sequences gets
  // at most half of the free places (rounded up), so a single sequence is admitted as long as a
  // place is free. Returns RESOURCE_EXHAUSTED if there are too few places, and the reason after
  // Close().
  absl::StatusOr<std::vector<Place>> Enter(int count);
  void Close(const absl::Status& why);  // the first reason stays

  int capacity() const { return capacity_; }
  // The maximum number of sequences of one request, on an empty server.
  int max_per_request() const { return ShareOf(capacity_); }
  int num_inside() const;
  bool is_closed() const;
  // Waits until no sequence is inside. Returns false if `timeout` passes first.
  bool AwaitEmpty(absl::Duration timeout) const;

 private:
  // Half of `free`, rounded up.
  static int ShareOf(int free) { return free - free / 2; }
  void Leave();

  const int capacity_;
  mutable absl::Mutex mutex_;
  int num_inside_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status end_ ABSL_GUARDED_BY(mutex_);  // OK while it is open
};

// Limits the total bytes that large requests hold. Thread-safe.
class ByteBudget {
 public:
  struct Return {
    int64_t bytes = 0;
    void operator()(ByteBudget* budget) const { budget->num_held_ -= bytes; }
  };
  // Bytes that are returned to the budget when the share is destroyed. The budget must outlive it.
  using Share = std::unique_ptr<ByteBudget, Return>;

  explicit ByteBudget(int64_t capacity) : capacity_(capacity) {}

  // Returns RESOURCE_EXHAUSTED if fewer than `bytes` are left.
  absl::StatusOr<Share> Take(int64_t bytes);
  int64_t num_held() const { return num_held_; }

 private:
  const int64_t capacity_;
  std::atomic<int64_t> num_held_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_SERVER_API_ADMISSION_H_
