// Bounds on work that nobody can interrupt from outside: a library's, which asks for its memory
// here (cmake/xgrammar.sh builds it to).
#ifndef TANDEM_CONSTRAINT_WORK_BUDGET_H_
#define TANDEM_CONSTRAINT_WORK_BUDGET_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace tandem {

// What the library may take on one thread while this exists. Once that is spent, each of its
// requests for memory throws WorkBudget::Spent, but those of destructors while that unwinds. It is
// for whoever made the budget to catch, and what the library was working on is then of no use but
// to be destroyed.
//
// To be made and destroyed on the thread that works; budgets do not nest.
class WorkBudget {
 public:
  struct Limits {
    int64_t bytes = int64_t{256} << 20;           // held at once
    absl::Duration time = absl::Seconds(10);      // of a processor
    bool watches_stack = false;                   // on threads of pthread's alone
    const std::atomic<bool>* unwanted = nullptr;  // nobody wants the result any more
  };
  class Spent : public std::bad_alloc {
   public:
    const char* what() const noexcept override { return "more than may be taken"; }
  };

  explicit WorkBudget(const Limits& limits);
  ~WorkBudget();
  WorkBudget(const WorkBudget&) = delete;
  WorkBudget& operator=(const WorkBudget&) = delete;

  // OK as long as something is left; else OUT_OF_RANGE saying what was spent, or CANCELLED.
  absl::Status status() const;
  bool is_out_of_time() const { return end_ == End::kTime; }
  // Of a processor, since it was made.
  absl::Duration time() const;
  int64_t max_bytes() const { return max_bytes_; }  // that were held at once

  // For the functions that the library calls.
  void Take(size_t size);         // may throw Spent
  void Add(int64_t bytes);        // that it now holds, or no longer
  static WorkBudget* OfThread();  // null if there is none

 private:
  enum class End { kNone, kBytes, kTime, kStack, kUnwanted };

  End Check(size_t size);

  const Limits limits_;
  const char* const lowest_;  // place on the stack that may be used
  const absl::Duration begin_;
  int64_t bytes_ = 0;
  int64_t max_bytes_ = 0;
  int64_t num_requests_ = 0;
  End end_ = End::kNone;
};

}  // namespace tandem

// What the library calls in place of operator new and its like. Without a budget on the thread they
// are no different.
extern "C" {
void* tandem_budgeted_new(size_t size);
void* tandem_budgeted_new_array(size_t size);
void tandem_budgeted_delete(void* memory);
void tandem_budgeted_delete_sized(void* memory, size_t size);
void tandem_budgeted_delete_array(void* memory);
void tandem_budgeted_delete_array_sized(void* memory, size_t size);
}

#endif  // TANDEM_CONSTRAINT_WORK_BUDGET_H_
