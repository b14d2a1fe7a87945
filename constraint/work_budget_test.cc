#include "constraint/work_budget.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <new>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

using testing::HasSubstr;

// What a library might do: it holds so many blocks of a KiB.
class Blocks {
 public:
  ~Blocks() {
    for (void* block : blocks_) tandem_budgeted_delete_sized(block, 1024);
  }
  void Add() { blocks_.push_back(tandem_budgeted_new(1024)); }

 private:
  std::vector<void*> blocks_;
};

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

TEST(WorkBudget, LimitsWhatIsHeldAtOnce) {
  const WorkBudget::Limits limits{.bytes = 1 << 20};
  int num_added = 0;
  const absl::Status spent = EndOf(limits, [&] {
    Blocks blocks;
    for (; num_added < 2000; ++num_added) blocks.Add();
  });
  EXPECT_EQ(spent, absl::OutOfRangeError("takes more than 1 MiB of memory"));
  EXPECT_GT(num_added, 900);
  EXPECT_LE(num_added, 1024);
  // As much again and again, but not at once.
  const absl::Status ok = EndOf(limits, [&] {
    for (int i = 0; i < 50; ++i) {
      Blocks blocks;
      for (int k = 0; k < 500; ++k) blocks.Add();
    }
  });
  EXPECT_TRUE(ok.ok()) << ok;
  // More than there is to address: nothing asks for that.
  EXPECT_THAT(EndOf(limits, [] { tandem_budgeted_new_array(SIZE_MAX / 2); }).message(),
              HasSubstr("MiB"));
}

TEST(WorkBudget, LimitsTime) {
  const absl::Status spent = EndOf({.time = absl::Milliseconds(20)}, [] {
    for (;;) {
      Blocks blocks;
      blocks.Add();
    }
  });
  EXPECT_EQ(spent, absl::OutOfRangeError("takes more than 20ms"));
}

TEST(WorkBudget, LimitsTheStack) {
  absl::Status spent;
  const std::function<void()> nest = [&] {
    Blocks blocks;
    blocks.Add();
    nest();
  };
  std::thread([&] { spent = EndOf({.watches_stack = true}, nest); }).join();
  EXPECT_EQ(spent, absl::OutOfRangeError("is nested too deeply"));
}

TEST(WorkBudget, EndsWhatNobodyWants) {
  std::atomic<bool> unwanted = false;
  const absl::Status spent = EndOf({.unwanted = &unwanted}, [&] {
    Blocks blocks;
    blocks.Add();
    unwanted = true;
    blocks.Add();
    ADD_FAILURE() << "it went on";
  });
  EXPECT_TRUE(absl::IsCancelled(spent)) << spent;
}

// What is spent stays spent, also for a library that goes on after an error; but its destructors
// may ask for memory.
TEST(WorkBudget, LetsWhatUnwindsHaveMemory) {
  struct AsksAtItsEnd {
    ~AsksAtItsEnd() { tandem_budgeted_delete(tandem_budgeted_new(10)); }
  };
  const auto ask = [] { tandem_budgeted_new(1000); };
  const absl::Status spent = EndOf({.bytes = 100}, [&] {
    EXPECT_THROW(
        {
          const AsksAtItsEnd at_its_end;
          ask();
        },
        std::bad_alloc);
    EXPECT_THROW(tandem_budgeted_new(1), std::bad_alloc);
  });
  EXPECT_TRUE(absl::IsOutOfRange(spent)) << spent;
}

TEST(WorkBudget, IsOfOneThread) {
  const WorkBudget budget({.bytes = 0});
  std::thread([] {
    EXPECT_EQ(WorkBudget::OfThread(), nullptr);
    tandem_budgeted_delete_array_sized(tandem_budgeted_new_array(100), 100);
  }).join();
  EXPECT_TRUE(budget.status().ok());
  EXPECT_EQ(budget.max_bytes(), 0);
}

}  // namespace
}  // namespace tandem
