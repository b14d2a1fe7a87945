#include "constraint/work_budget.h"

#include <atomic>
#include <functional>
#include <thread>

#include "constraint/count_loops.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

// How the budget ended the work.
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

TEST(WorkBudget, EndsUnwantedWork) {
  std::atomic<bool> unwanted = false;
  const absl::Status spent = EndOf({.unwanted = &unwanted}, [&] {
    tandem_count_loop();
    unwanted = true;
    for (;;) tandem_count_loop();
  });
  EXPECT_TRUE(absl::IsCancelled(spent)) << spent;
}

// What is spent stays spent, also for a library that goes on after an error; but its destructors
// may loop.
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

TEST(WorkBudget, IsOfOneThread) {
  const WorkBudget budget({.time = -absl::Seconds(1)});
  std::thread([] {
    for (int i = 0; i < 1000; ++i) tandem_count_loop();
  }).join();
  EXPECT_TRUE(budget.status().ok());
}

}  // namespace
}  // namespace tandem
