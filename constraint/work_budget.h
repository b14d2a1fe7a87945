// Bounds on work that cannot be interrupted from outside: XGrammar's, whose loops ask here
// (cmake/xgrammar.sh).
#ifndef TANDEM_CONSTRAINT_WORK_BUDGET_H_
#define TANDEM_CONSTRAINT_WORK_BUDGET_H_

#include <atomic>
#include <cstdint>
#include <exception>
#include <limits>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace tandem {

// What counted loops may take on one thread while this exists. Once that is spent, each look at the
// budget throws WorkBudget::Spent, except while an exception unwinds. The owner of the budget
// catches it; what the library was working on can only be destroyed then.
//
// Made and destroyed on the thread that works; budgets do not nest.
class WorkBudget {
 public:
  struct Limits {
    absl::Duration time = absl::Seconds(10);              // of a processor
    int64_t loops = std::numeric_limits<int64_t>::max();  // for tests: time is up after so many
    bool watches_stack = false;                           // on threads of pthread's alone
    const std::atomic<bool>* unwanted = nullptr;          // set once the result is no longer wanted
  };
  class Spent : public std::exception {
   public:
    const char* what() const noexcept override { return "more than may be taken"; }
  };

  explicit WorkBudget(const Limits& limits);
  ~WorkBudget();
  WorkBudget(const WorkBudget&) = delete;
  WorkBudget& operator=(const WorkBudget&) = delete;

  // OK as long as something is left; else OUT_OF_RANGE saying what was spent, or CANCELLED.
  absl::Status status() const;
  // Of a processor, since it was made.
  absl::Duration time() const;

  void Look(const char* stack_place);  // may throw Spent

 private:
  enum class End { kNone, kTime, kStack, kUnwanted };

  End Check(const char* stack_place);

  const Limits limits_;
  const absl::Duration begin_;
  int64_t num_loops_ = 0;
  End end_ = End::kNone;
};

}  // namespace tandem

#endif  // TANDEM_CONSTRAINT_WORK_BUDGET_H_
