#include "text/constraint/work_budget.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "text/constraint/count_loops.h"

namespace tandem {
namespace {

// Does the work within a budget and returns the budget's status.
absl::Status EndOf(const WorkBudget::Limits& limits, const std::function<void()>& work) {
  const WorkBudget budget(limits);
  EXPECT_TRUE(budget.status().ok());
  try {
    work();
  } catch (const WorkBudget::Spent&) {
    EXPECT_FALSE(budget.status().ok());
  }
  return budget.status();
}

TEST(WorkBudget, LimitsTime) {
  const absl::Status spent = EndOf({.time = absl::Milliseconds(20)}, [] {
    for (;;) tandem_count_loop();
  });
  EXPECT_EQ(spent, absl::OutOfRangeError("takes more than 20ms"));
  const absl::Status ok = EndOf({}, [] {
    for (int i = 0; i < 10'000; ++i) tandem_count_loop();
  });
  EXPECT_TRUE(ok.ok()) << ok;
}

TEST(WorkBudget, LimitsTheStack) {
  absl::Status spent;
  const std::function<void()> nest = [&] {
    tandem_count_loop();
    nest();
  };
  std::thread([&] { spent = EndOf({.watches_stack = true}, nest); }).join();
  EXPECT_EQ(spent, absl::OutOfRangeError("is nested too deeply"));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(WorkBudget, LimitsTheBytesThatAreHeld) {
  std::vector<std::string> held;
  const absl::Status spent = EndOf({.bytes = 1 << 20}, [&] {
    for (;;) {
      tandem_count_loop();
      held.emplace_back(1000, 'x');
    }
  });
  EXPECT_EQ(spent, absl::OutOfRangeError("takes more than 1048576 bytes"));
  EXPECT_LT(held.size(), 1100);
  const absl::Status ok = EndOf({.bytes = 1 << 20}, [] {
    for (int i = 0; i < 10'000; ++i) {
      tandem_count_loop();
      const std::string freed(1000, 'x');
    }
  });
  EXPECT_TRUE(ok.ok()) << ok;
}

TEST(WorkBudget, LimitsOneAllocation) {
  const WorkBudget budget({.bytes = 1 << 20});
  EXPECT_THROW(std::string(3 << 20, 'x'), std::bad_alloc);
  EXPECT_EQ(budget.status(), absl::OutOfRangeError("takes more than 1048576 bytes"));
}
#endif

TEST(WorkBudget, EndsUnwantedWork) {
  std::atomic<bool> unwanted = false;
  const absl::Status spent = EndOf({.unwanted = &unwanted}, [&] {
    tandem_count_loop();
    unwanted = true;
    for (;;) tandem_count_loop();
  });
  EXPECT_TRUE(absl::IsCancelled(spent)) << spent;
}

// A spent budget stays spent if the library continues after an error, but its destructors may loop.
TEST(WorkBudget, LetsDestructorsLoopWhileAnExceptionUnwinds) {
  struct LoopsAtItsEnd {
    ~LoopsAtItsEnd() {
      for (int i = 0; i < 1000; ++i) tandem_count_loop();
    }
  };
  const absl::Status spent = EndOf({.time = -absl::Seconds(1)}, [&] {
    EXPECT_THROW(
        {
          const LoopsAtItsEnd at_its_end;
          tandem_count_loop();
        },
        WorkBudget::Spent);
    EXPECT_THROW(tandem_count_loop(), WorkBudget::Spent);
  });
  EXPECT_TRUE(absl::IsOutOfRange(spent)) << spent;
}

TEST(WorkBudget, AppliesToOneThread) {
  const WorkBudget budget({.time = -absl::Seconds(1)});
  std::thread([] {
    for (int i = 0; i < 1000; ++i) tandem_count_loop();
  }).join();
  EXPECT_TRUE(budget.status().ok());
}

constexpr absl::Duration kMask = absl::Milliseconds(30);

// The times of a token and of the mask after it, by place.
absl::Duration TokenTime(int place) { return absl::Milliseconds(place * 7 % 20); }
absl::Duration MaskTime(int place) { return absl::Milliseconds(20 + place * 13 % 45); }

TEST(TimeAccount, AddsTimeForEachTokenUpToALimit) {
  TimeAccount account;
  EXPECT_EQ(account.LeftForMask(), TimeAccount::kMaxTime);
  account.AddMask(absl::Milliseconds(600));
  EXPECT_EQ(account.LeftForMask(), TimeAccount::kMaxTime);  // the mask counts once when asked again
  EXPECT_EQ(account.LeftForToken(), absl::Milliseconds(450));
  account.AddToken(1, absl::Milliseconds(50));
  account.Commit();
  EXPECT_EQ(account.LeftForMask(), absl::Milliseconds(400));
  for (int i = 0; i < 100; ++i) {
    account.AddToken(1, absl::ZeroDuration());
    account.Commit();
  }
  EXPECT_EQ(account.LeftForMask(), TimeAccount::kMaxTime);
}

// Drafted, accepted and rejected tokens, and the order of masks, make no difference.
TEST(TimeAccount, LeavesTheSameTimeAsPlainDecoding) {
  constexpr int kLength = 400;
  TimeAccount plain;
  std::vector<absl::Duration> left;
  for (int place = 0; place < kLength; ++place) {
    left.push_back(plain.LeftForMask());
    plain.AddMask(MaskTime(place));
    plain.AddToken(place, TokenTime(place + 1));
    plain.Commit();
  }
  EXPECT_LT(*std::min_element(left.begin(), left.end()), absl::Milliseconds(500));
  std::mt19937_64 random(1);
  TimeAccount drafted;
  for (int place = 0; place < kLength;) {
    ASSERT_EQ(drafted.LeftForMask(), left[place]) << place;
    drafted.AddMask(MaskTime(place));
    const int num_drafted = std::min<int>(random() % 33, kLength - 1 - place);
    const int num_right = num_drafted == 0 ? 0 : static_cast<int>(random() % num_drafted);
    for (int walk = 0; walk < 2; ++walk) {  // the drafter's walk, then the target's
      for (int i = 1; i <= num_drafted; ++i) {
        const bool is_right = i <= num_right;
        drafted.AddToken(is_right ? place + i - 1 : -1, TokenTime(place + i));
        if (is_right) {
          ASSERT_EQ(drafted.LeftForMask(), left[place + i]) << place << " " << i;
        }
        drafted.AddMask(MaskTime(place + i));
      }
      for (int i = 0; i < num_drafted; ++i) drafted.Undo();
    }
    for (int i = 0; i <= num_right; ++i) {
      drafted.AddToken(place, TokenTime(place + 1));
      drafted.Commit();
      ++place;
    }
  }
}

// Rejected tokens pause drafts. Committed tokens refund their time.
TEST(TimeAccount, PausesDraftsThatTakeTooLong) {
  TimeAccount account;
  int num_rejected = 0;
  for (; account.may_draft(); ++num_rejected) {
    account.AddToken(1, absl::ZeroDuration());
    account.AddMask(kMask);
    account.Undo();
  }
  EXPECT_EQ(num_rejected, 34);
  EXPECT_EQ(account.LeftForMask(), TimeAccount::kMaxTime);
  account.AddMask(kMask);
  account.AddToken(2, absl::ZeroDuration());
  account.Commit();
  EXPECT_TRUE(account.may_draft());
  account.AddDraftWork(absl::Milliseconds(200));
  EXPECT_FALSE(account.may_draft());
  EXPECT_EQ(account.LeftForMask(), TimeAccount::kMaxTime);
}

// An output that took long to follow is not followed again only for the sake of drafts.
TEST(TimeAccount, StopsDraftsOfSlowOutputs) {
  TimeAccount account;
  for (int i = 0; i < 34; ++i) {
    EXPECT_TRUE(account.may_draft()) << i;
    account.AddToken(1, kMask);
    account.Commit();
  }
  EXPECT_FALSE(account.may_draft());
  EXPECT_GT(account.left_for_drafts(), absl::ZeroDuration());
}

}  // namespace
}  // namespace tandem
