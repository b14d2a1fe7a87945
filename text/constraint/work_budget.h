// Limits on the work of XGrammar, which cannot be interrupted from outside: its loops check a
// budget (cmake/xgrammar.sh).
#ifndef TANDEM_TEXT_CONSTRAINT_WORK_BUDGET_H_
#define TANDEM_TEXT_CONSTRAINT_WORK_BUDGET_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tandem/types.h"

namespace tandem {

// Limits the work of one thread in counted loops while this object exists. Once the budget is
// spent, each check throws WorkBudget::Spent, except while an exception unwinds. The owner of the
// budget catches it, and must then destroy the library's objects without using them.
//
// Memory is counted by the program's operator new (work_budget.cc) and checked at the next loop. An
// allocation that would exceed 1.5 times the limit throws std::bad_alloc. Not counted under
// sanitizers, nor in a program that has an operator new of its own.
//
// Make and destroy it on the thread that works. Budgets do not nest.
class WorkBudget {
 public:
  struct Limits {
    absl::Duration time = absl::Seconds(10);              // processor time
    int64_t loops = std::numeric_limits<int64_t>::max();  // for tests: loops until time is up
    bool watches_stack = false;                           // only on threads made by pthreads
    int64_t bytes = int64_t{256} << 20;                   // memory that the work may hold
    const std::atomic<bool>* unwanted = nullptr;  // true if the result is not needed any more
  };
  class Spent : public std::exception {
   public:
    const char* what() const noexcept override { return "the work budget is spent"; }
  };

  explicit WorkBudget(const Limits& limits);
  ~WorkBudget();
  WorkBudget(const WorkBudget&) = delete;
  WorkBudget& operator=(const WorkBudget&) = delete;

  // OK until the budget is spent; then OUT_OF_RANGE with the limit, or CANCELLED if unwanted.
  absl::Status status() const;
  // Processor time since the budget was made.
  absl::Duration time() const;

  // For operator new, which may throw std::bad_alloc, and for operator delete, on this thread.
  void BeforeNew(size_t size);
  void OnChange(int64_t bytes);

  // Checks the limits; throws Spent if the budget is spent. `stack_place` is the current stack
  // address.
  void Look(const char* stack_place);

 private:
  enum class End { kNone, kTime, kStack, kBytes, kUnwanted };

  End Check(const char* stack_place);

  const Limits limits_;
  const absl::Duration begin_;
  int64_t num_loops_ = 0;
  int64_t bytes_ = 0;  // allocated minus freed; negative if earlier memory was freed
  End end_ = End::kNone;
};

// The processor time that following one output may take on the engine's thread: `kPerToken` for
// each token on average, with a credit of up to `kMaxTime` for slow tokens. Common schemas take
// 0.02 ms for each token.
//
// Drafts do not change whether an output is ended. At each place, the account has the time that
// plain decoding would have left there: each token and each mask up to the place counts once,
// however often a draft asked for it. All other work, such as that on rejected tokens, is charged
// to a second account of the same size, which pauses drafts but never ends an output.
// Thread-compatible.
class TimeAccount {
 public:
  static constexpr absl::Duration kPerToken = absl::Milliseconds(50);
  static constexpr absl::Duration kMaxTime = absl::Seconds(1);

  // The time left for the mask of this place, and after that for accepting one more token.
  absl::Duration LeftForMask() const;
  absl::Duration LeftForToken() const { return Refilled(LeftAt(depth_)); }
  // The time left for drafts.
  absl::Duration left_for_drafts() const { return for_drafts_; }
  // Whether drafting may continue. It stops for good once following the output from its beginning
  // would take more than kMaxTime, because that is necessary after a draft that runs out of time.
  bool may_draft() const { return for_drafts_ > absl::ZeroDuration() && replay_time_ <= kMaxTime; }

  void AddMask(absl::Duration time);
  // Moves on to the place after `token`.
  void AddToken(TokenId token, absl::Duration time);
  // Moves back before the last token. REQUIRES: there is one that is not committed.
  void Undo();
  // Makes the tokens up to this place final.
  void Commit();
  // Counts work that plain decoding does not do.
  void AddDraftWork(absl::Duration time) { for_drafts_ -= time; }

 private:
  // The place after one token.
  struct Place {
    TokenId token = -1;
    absl::Duration accept_time = {};
    absl::Duration mask_time = {};
    absl::Duration time() const { return accept_time + mask_time; }
  };

  static absl::Duration Refilled(absl::Duration left) {
    return std::min(left + kPerToken, kMaxTime);
  }
  // The time left after all known work at this place.
  absl::Duration LeftAt(size_t depth) const;

  // [0, depth_]: the place after the committed tokens, and the places after each token since.
  // Beyond them are the places of a draft that was undone and may be followed again.
  std::vector<Place> places_ = std::vector<Place>(1);
  size_t depth_ = 0;
  absl::Duration left_ = kMaxTime;        // before the work at places_[0]
  absl::Duration for_drafts_ = kMaxTime;  // committed work is refunded
  absl::Duration replay_time_;            // the time it took to accept the committed tokens
};

}  // namespace tandem

#endif  // TANDEM_TEXT_CONSTRAINT_WORK_BUDGET_H_
