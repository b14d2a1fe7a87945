// Memory that runs out at a chosen moment. A program that links this has its own operator new,
// which all of the standard library, Abseil and nlohmann-json use; files' mappings and PCRE2 do
// not.
#ifndef TANDEM_TESTS_ALLOCATION_FAILING_NEW_H_
#define TANDEM_TESTS_ALLOCATION_FAILING_NEW_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"

namespace tandem {

// While one lives, allocation `failing` of those made meanwhile, by any thread, counted from 0, is
// refused, or it and all behind it; none if it is kNone. One at a time.
class FailingNew {
 public:
  static constexpr int64_t kNone = -1;
  enum class Span { kOne, kAllBehind };
  explicit FailingNew(int64_t failing, Span span = Span::kOne);
  ~FailingNew();
  FailingNew(const FailingNew&) = delete;
  FailingNew& operator=(const FailingNew&) = delete;

  static int64_t num_allocations();  // since one was made last
  // The most bytes held at once since then, less those held at that moment.
  static int64_t most_bytes();
  // What the calling thread allocates is neither counted nor refused, from now on or no more: it
  // stands for another process.
  static void ExemptThisThread(bool is_exempt);
};

// What became of an attempt.
struct Attempt {
  bool has_thrown = false;  // std::bad_alloc
  absl::Status status;      // else
  bool ok() const { return !has_thrown && status.ok(); }
};
Attempt TryWithFailure(int64_t failing, const std::function<absl::Status()>& attempt);

// Makes the attempt with each of its allocations failing in turn, or with `max_failures` of them
// where there are more, the first ones and then every so many: it has to fail, by std::bad_alloc or
// by a status, or to do without. `check` follows each failure. Ends with an attempt that nothing
// disturbs, which has to succeed. Returns how many attempts failed.
int FailEachAllocation(const std::function<absl::Status()>& attempt,
                       const std::function<void()>& check, int max_failures = 1000);

}  // namespace tandem

#endif  // TANDEM_TESTS_ALLOCATION_FAILING_NEW_H_
