#include "base/thread_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

namespace tandem {
namespace {

// Checks that one Run makes every call once: 0 on the caller's thread, the others on the caller's
// or on their own threads.
void ExpectEachThreadOnce(ThreadPool* pool) {
  std::vector<std::atomic<int>> calls(pool->num_threads());
  std::vector<std::thread::id> ids(pool->num_threads());
  pool->Run([&](int thread) {
    calls[thread].fetch_add(1);
    ids[thread] = std::this_thread::get_id();
  });
  for (const std::atomic<int>& count : calls) EXPECT_EQ(count.load(), 1);
  EXPECT_EQ(ids[0], std::this_thread::get_id());
  std::set<std::thread::id> others;
  for (const std::thread::id& id : ids) {
    EXPECT_TRUE(id == ids[0] || others.insert(id).second);
  }
}

TEST(ThreadPool, EveryThreadRunsOnce) {
  for (const int num_threads : {1, 2, 3, 7}) {
    ThreadPool pool(num_threads);
    EXPECT_EQ(pool.num_threads(), num_threads);
    for (int run = 0; run < 20; ++run) ExpectEachThreadOnce(&pool);
  }
}

// A run sees all writes of the previous run without further synchronization.
TEST(ThreadPool, RunsAreOrdered) {
  ThreadPool pool(4);
  std::vector<int> values(pool.num_threads());
  for (int run = 0; run < 1000; ++run) {
    pool.Run([&](int thread) {
      if (values[thread] == run) ++values[thread];
    });
  }
  for (const int value : values) EXPECT_EQ(value, 1000);
}

TEST(ThreadPool, MoreThreadsThanCoresFinish) {
  ThreadPool pool(4 * static_cast<int>(std::thread::hardware_concurrency()) + 1);
  for (int run = 0; run < 50; ++run) ExpectEachThreadOnce(&pool);
}

TEST(ThreadPool, WakesAfterSleeping) {
  ThreadPool pool(3);
  for (const int milliseconds : {1, 5, 20, 50}) {
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));  // long past spinning
    ExpectEachThreadOnce(&pool);
  }
}

// The caller also sleeps if a worker takes long.
TEST(ThreadPool, WaitsForASlowWorker) {
  ThreadPool pool(3);
  std::atomic<bool> has_begun{false}, done{false};
  pool.Run([&](int thread) {
    while (thread == 0 && !has_begun) std::this_thread::yield();
    if (thread != 2) return;
    has_begun = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    done = true;
  });
  EXPECT_TRUE(done);
}

TEST(ThreadPool, ThreadsWorkAtTheSameTime) {
  ThreadPool pool(4);
  for (int run = 0; run < 20; ++run) {
    std::set<std::thread::id> ids;
    std::atomic<int> begun{0};
    std::vector<std::thread::id> id_of(pool.num_threads());
    pool.Run([&](int thread) {
      id_of[thread] = std::this_thread::get_id();
      ++begun;
      while (thread == 0 && begun < pool.num_threads()) std::this_thread::yield();
    });
    ids.insert(id_of.begin(), id_of.end());
    EXPECT_EQ(ids.size(), id_of.size());
  }
}

// A worker takes longer to begin than the caller takes for its empty share.
TEST(ThreadPool, CallerDoesSharesThatNoWorkerHasBegun) {
  ThreadPool pool(2);
  int num_by_caller = 0;
  for (int run = 0; run < 20000; ++run) {
    std::thread::id id;
    pool.Run([&](int thread) {
      if (thread == 1) id = std::this_thread::get_id();
    });
    num_by_caller += id == std::this_thread::get_id();
  }
  EXPECT_GT(num_by_caller, 0);
}

TEST(ThreadPool, CanBeDestroyedUnusedUsedOrAsleep) {
  for (int i = 0; i < 50; ++i) ThreadPool pool(4);
  for (int i = 0; i < 50; ++i) {
    ThreadPool pool(4);
    ExpectEachThreadOnce(&pool);
  }
  ThreadPool pool(4);
  ExpectEachThreadOnce(&pool);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

// Row 100 of the bug catalogue: an allocation may fail on any thread.
TEST(ThreadPool, RethrowsExceptionsToTheCaller) {
  for (const int num_threads : {1, 2, 5}) {
    ThreadPool pool(num_threads);
    for (int failing = 0; failing < num_threads; ++failing) {
      std::vector<int> calls(num_threads);
      EXPECT_THROW(pool.Run([&](int t) {
        ++calls[t];
        if (t == failing) calls.at(num_threads);
      }),
                   std::out_of_range);
      EXPECT_THAT(calls, testing::Each(1));
      ExpectEachThreadOnce(&pool);
    }
    EXPECT_THROW(pool.Run([&](int) { std::vector<int>().at(0); }), std::out_of_range);
    ExpectEachThreadOnce(&pool);
  }
}

TEST(ThreadPool, PoolsDoNotDisturbEachOther) {
  ThreadPool first(2), second(3);
  std::thread other([&] {
    for (int run = 0; run < 200; ++run) ExpectEachThreadOnce(&second);
  });
  for (int run = 0; run < 200; ++run) ExpectEachThreadOnce(&first);
  other.join();
}

TEST(ShareOf, CoversEverythingInOrderAndEvenly) {
  for (int64_t count = 0; count <= 40; ++count) {
    for (int parts = 1; parts <= 9; ++parts) {
      int64_t covered = 0;
      for (int index = 0; index < parts; ++index) {
        const Share share = ShareOf(count, parts, index);
        EXPECT_EQ(share.begin, covered);
        EXPECT_GE(share.end - share.begin, count / parts);
        EXPECT_LE(share.end - share.begin, (count + parts - 1) / parts);
        covered = share.end;
      }
      EXPECT_EQ(covered, count);
    }
  }
  EXPECT_EQ(ShareOf(int64_t{INT_MAX} * 1000, 1000, 999).end, int64_t{INT_MAX} * 1000);
}

}  // namespace
}  // namespace tandem
