// Bounds on work that cannot be interrupted from outside: XGrammar's, whose loops ask here
// (cmake/xgrammar.sh).
#ifndef TANDEM_CONSTRAINT_WORK_BUDGET_H_
#define TANDEM_CONSTRAINT_WORK_BUDGET_H_

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

// A limit on the counted loops of one thread while this exists. Once it is spent, each look at the
// budget throws WorkBudget::Spent, except while an exception unwinds. The owner of the budget
// catches it. The library's objects can only be destroyed then.
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

// What following one output may take of a processor, on the engine's thread: `kPerToken` on
// average, and more for some tokens as long as the credit lasts. Common schemas take .02 ms a
// token.
//
// The verdict is plain decoding's, whatever was drafted. At each place the account says what plain
// decoding would have left there: each token and each mask on the way counts once, however often a
// draft asked for it. All other work, such as that on tokens that are taken back, is on a second
// account of the same size, which pauses drafts and never ends an output. Thread-compatible.
class TimeAccount {
 public:
  static constexpr absl::Duration kPerToken = absl::Milliseconds(50);
  static constexpr absl::Duration kMaxTime = absl::Seconds(1);

  // The time left for the mask of this place, and after that to accept one more token.
  absl::Duration LeftForMask() const;
  absl::Duration LeftForToken() const { return Refilled(LeftAt(depth_)); }
  // The time left for drafts.
  absl::Duration left_for_drafts() const { return for_drafts_; }
  // Whether drafts may go on. They stop for good once it would take long to follow the output anew,
  // which becomes necessary where a draft runs out of time.
  bool may_draft() const { return for_drafts_ > absl::ZeroDuration() && replay_time_ <= kMaxTime; }

  void AddMask(absl::Duration time);
  // Moves on to the place after `token`.
  void AddToken(TokenId token, absl::Duration time);
  // Moves back before the last token. REQUIRES: there is one, not committed.
  void Undo();
  // The tokens up to here are final.
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

  // The place after the committed tokens and those after each token since, [0, depth_]; beyond them
  // those of a draft that was taken back and may be walked again.
  std::vector<Place> places_ = std::vector<Place>(1);
  size_t depth_ = 0;
  absl::Duration left_ = kMaxTime;        // before the work at places_[0]
  absl::Duration for_drafts_ = kMaxTime;  // committed work is given back
  absl::Duration replay_time_;            // that it took to accept the committed tokens
};

}  // namespace tandem

#endif  // TANDEM_CONSTRAINT_WORK_BUDGET_H_
