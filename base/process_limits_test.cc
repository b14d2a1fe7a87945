#include "base/process_limits.h"

#include <sched.h>
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/folder_testing.h"

namespace tandem {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// The files of a fake machine, which has 8 GiB of available memory at first.
class FakeRoot : public TestFolder {
 public:
  FakeRoot() {
    Write("/proc/meminfo", "MemTotal:  16777216 kB\nMemFree: 4 kB\nMemAvailable: 8388608 kB\n");
  }
  void WriteMiB(const std::string& path, int64_t number) {
    Write(path, absl::StrCat(number * kMiB, "\n"));
  }
  int64_t AvailableMiB() const { return AvailableMemoryBytes(path()).value_or(-kMiB) / kMiB; }
};

TEST(AvailableMemoryBytes, IsThatOfTheMachineWithoutGroups) {
  FakeRoot root;
  EXPECT_EQ(root.AvailableMiB(), 8192);
  root.Write("/proc/self/cgroup", "0::/\n");
  EXPECT_EQ(root.AvailableMiB(), 8192);
  root.Write("/proc/self/cgroup", "nonsense\n7:\n");
  EXPECT_EQ(root.AvailableMiB(), 8192);
  EXPECT_FALSE(AvailableMemoryBytes("/nowhere").has_value());
}

// Row 90 of the bug catalogue.
TEST(AvailableMemoryBytes, IsWhatTheTightestGroupOfVersion2Leaves) {
  FakeRoot root;
  root.Write("/proc/self/cgroup", "0::/a/b\n");
  root.Write("/sys/fs/cgroup/a/b/memory.max", "max\n");
  root.WriteMiB("/sys/fs/cgroup/a/b/memory.current", 300);
  EXPECT_EQ(root.AvailableMiB(), 8192);
  root.WriteMiB("/sys/fs/cgroup/a/memory.max", 1000);
  root.WriteMiB("/sys/fs/cgroup/a/memory.current", 700);
  EXPECT_EQ(root.AvailableMiB(), 300);
  root.WriteMiB("/sys/fs/cgroup/a/b/memory.max", 500);
  EXPECT_EQ(root.AvailableMiB(), 200);
  root.WriteMiB("/sys/fs/cgroup/a/b/memory.high", 450);
  EXPECT_EQ(root.AvailableMiB(), 150);
  root.WriteMiB("/sys/fs/cgroup/a/b/memory.current", 501);
  EXPECT_EQ(root.AvailableMiB(), 0);
}

TEST(AvailableMemoryBytes, CountsPagesOfFilesAsAvailable) {
  FakeRoot root;
  root.Write("/proc/self/cgroup", "0::/a\n");
  root.WriteMiB("/sys/fs/cgroup/a/memory.max", 1000);
  root.WriteMiB("/sys/fs/cgroup/a/memory.current", 900);
  root.Write("/sys/fs/cgroup/a/memory.stat",
             absl::StrCat("anon 5\nfile ", 600 * kMiB, "\ninactive_file ", 500 * kMiB,
                          "\nactive_file ", 100 * kMiB, "\n"));
  EXPECT_EQ(root.AvailableMiB(), 700);
}

TEST(AvailableMemoryBytes, IsWhatTheTightestGroupOfVersion1Leaves) {
  FakeRoot root;
  root.Write("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/docker/a\n0::/docker/a\n");
  root.Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  root.WriteMiB("/sys/fs/cgroup/memory/memory.usage_in_bytes", 5000);
  EXPECT_EQ(root.AvailableMiB(), 8192);
  root.WriteMiB("/sys/fs/cgroup/memory/docker/a/memory.limit_in_bytes", 1000);
  root.WriteMiB("/sys/fs/cgroup/memory/docker/a/memory.usage_in_bytes", 700);
  root.Write("/sys/fs/cgroup/memory/docker/a/memory.stat",
             absl::StrCat("inactive_file 1\ntotal_inactive_file ", 50 * kMiB,
                          "\ntotal_active_file ", 50 * kMiB, "\n"));
  EXPECT_EQ(root.AvailableMiB(), 400);
}

// In a container whose group is mounted as the root, while /proc has the path on the host.
TEST(AvailableMemoryBytes, FindsAGroupThatIsMountedAsTheRoot) {
  FakeRoot root;
  root.WriteMiB("/sys/fs/cgroup/memory/memory.limit_in_bytes", 256);
  root.WriteMiB("/sys/fs/cgroup/memory/memory.usage_in_bytes", 56);
  for (const char* group : {"/docker/0123", "/../outside", "/"}) {
    root.Write("/proc/self/cgroup", absl::StrCat("4:memory:", group, "\n"));
    EXPECT_EQ(root.AvailableMiB(), 200) << group;
  }
}

TEST(AvailableMemoryBytes, IsKnownHere) {
  const auto bytes = AvailableMemoryBytes();
  ASSERT_TRUE(bytes.has_value());
  EXPECT_GT(*bytes, 0);
}

TEST(NumUsableCores, IsBetweenOneAndTheLogicalProcessors) {
  EXPECT_GE(NumUsableCores(), 1);
  EXPECT_LE(NumUsableCores(), static_cast<int>(std::thread::hardware_concurrency()));
}

TEST(NumUsableProcessors, IsAtLeastTheCoresAndAtMostTheQuota) {
  EXPECT_GE(NumUsableProcessors(), NumUsableCores());
  EXPECT_LE(NumUsableProcessors(), static_cast<int>(std::thread::hardware_concurrency()));
  FakeRoot root;
  root.Write("/proc/self/cgroup", "0::/a\n");
  root.Write("/sys/fs/cgroup/a/cpu.max", "100000 100000\n");
  EXPECT_EQ(NumUsableProcessors(root.path()), 1);
}

// Row 90 of the bug catalogue. Without topology every logical processor is a core.
TEST(NumUsableCores, IsNoMoreThanTheQuota) {
  FakeRoot root;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  ASSERT_EQ(sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  const int all = CPU_COUNT(&allowed);
  EXPECT_EQ(NumUsableCores(root.path()), all);

  root.Write("/proc/self/cgroup", "0::/a/b\n");
  root.Write("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(NumUsableCores(root.path()), all);
  root.Write("/sys/fs/cgroup/a/cpu.max", absl::StrCat(all * 100000 + 50000, " 100000\n"));
  EXPECT_EQ(NumUsableCores(root.path()), all);
  root.Write("/sys/fs/cgroup/a/b/cpu.max", "190000 100000\n");
  EXPECT_EQ(NumUsableCores(root.path()), 1);
  root.Write("/sys/fs/cgroup/a/b/cpu.max", "20000 100000\n");
  EXPECT_EQ(NumUsableCores(root.path()), 1);
  root.Write("/sys/fs/cgroup/a/b/cpu.max", "200000 100000\n");
  EXPECT_EQ(NumUsableCores(root.path()), std::min(all, 2));

  root.Write("/proc/self/cgroup", "5:cpu,cpuacct:/x\n");
  root.Write("/sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us", "100000\n");
  root.Write("/sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(NumUsableCores(root.path()), all);
  root.Write("/sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us", "100000\n");
  EXPECT_EQ(NumUsableCores(root.path()), 1);
}

// The pages of the process: its whole address space, and those in memory.
struct Statm {
  int64_t size = 0;
  int64_t resident = 0;
};
Statm ReadStatm() {
  std::ifstream file("/proc/self/statm");
  Statm statm;
  file >> statm.size >> statm.resident;
  return statm;
}

// In the arena of another thread, where no large piece is freed.
TEST(ReturnFreeMemory, ReturnsSmallPieces) {
  constexpr int kNumPieces = 2'000'000;
  const int64_t page_bytes = sysconf(_SC_PAGESIZE);
  if (ReadStatm().size * page_bytes > int64_t{1} << 40) {
    GTEST_SKIP() << "this program has another allocator, for example a sanitizer's";
  }
  std::thread([page_bytes] {
    auto keeps_the_arena = std::make_unique<int>(1);
    std::vector<std::unique_ptr<char[]>> pieces(kNumPieces);
    for (auto& piece : pieces) piece = std::make_unique<char[]>(40);
    auto behind_them = std::make_unique<int>(2);
    const int64_t most = ReadStatm().resident;
    for (auto& piece : pieces) piece.reset();
    ReturnFreeMemory();
    EXPECT_LT(ReadStatm().resident, most - kNumPieces * int64_t{40} / page_bytes);
    EXPECT_EQ(*keeps_the_arena + *behind_them, 3);
  }).join();
}

}  // namespace
}  // namespace tandem
