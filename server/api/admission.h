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

// How many sequences are with the engine, and whether more may come. Thread-safe.
class Admission {
 public:
  struct Leaving {
    void operator()(Admission* admission) const { admission->Leave(); }
  };
  // One sequence's place, given back when it is destroyed. The Admission must outlive it.
  using Place = std::unique_ptr<Admission, Leaving>;

  explicit Admission(int capacity) : capacity_(capacity) {}

  // Lets a request's `count` sequences in. A request of several takes at most half of the places
  // that are free: so it always leaves as many to others, and whoever asks for one gets it while
  // there is one. RESOURCE_EXHAUSTED if they are too many, UNAVAILABLE after Close(); then none is
  // in.
  absl::StatusOr<std::vector<Place>> Enter(int count);
  void Close();

  int capacity() const { return capacity_; }
  // The most sequences that one request can ever have.
  int max_per_request() const { return ShareOf(capacity_); }
  int num_inside() const;
  bool is_closed() const;
  // True when nobody is inside, false if `timeout` passes before.
  bool AwaitEmpty(absl::Duration timeout) const;

 private:
  // Half, rounded up.
  static int ShareOf(int free) { return free - free / 2; }
  void Leave();

  const int capacity_;
  mutable absl::Mutex mutex_;
  int num_inside_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = false;
};

// How many bytes are held together, by requests that are large. Thread-safe.
class ByteBudget {
 public:
  struct Return {
    int64_t bytes = 0;
    void operator()(ByteBudget* budget) const { budget->num_held_ -= bytes; }
  };
  // Bytes that are given back when it is destroyed. The budget must outlive it.
  using Share = std::unique_ptr<ByteBudget, Return>;

  explicit ByteBudget(int64_t capacity) : capacity_(capacity) {}

  // RESOURCE_EXHAUSTED if they are more than are left.
  absl::StatusOr<Share> Take(int64_t bytes);
  int64_t num_held() const { return num_held_; }

 private:
  const int64_t capacity_;
  std::atomic<int64_t> num_held_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_SERVER_API_ADMISSION_H_
