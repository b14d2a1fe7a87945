#include "base/machine_load.h"

#include <string>

#include "gtest/gtest.h"
#include "tests/folder_testing.h"

namespace tandem {
namespace {

class MachineLoad : public FolderTest {
 protected:
  std::optional<ProcessorTimes> Read() const { return ReadProcessorTimes(folder_); }
};

TEST_F(MachineLoad, IsReadFromProc) {
  Write("/proc/stat", "cpu  10 2 3 400 50 6 7 8 1 1\ncpu0 1 1 1 1 1 1 1 1 0 0\n");
  Write("/proc/self/stat", "12 (a) b) c) S 1 2 3 4 5 6 7 8 9 10 21 4 0 0 20 0\n");
  const std::optional<ProcessorTimes> times = Read();
  ASSERT_TRUE(times.has_value());
  EXPECT_EQ(times->busy, 10 + 2 + 3 + 6 + 7 + 8);
  EXPECT_EQ(times->total, times->busy + 400 + 50);
  EXPECT_EQ(times->own, 25);
}

TEST_F(MachineLoad, IsUnknownWithoutProc) {
  const std::string stat = "cpu  10 2 3 400 50 6 7 8 1 1\n";
  const std::string own = "12 (a) S 1 2 3 4 5 6 7 8 9 10 21 4 0\n";
  EXPECT_FALSE(Read().has_value());
  for (const auto& [machine, process] : {std::make_pair(stat, std::string()),
                                         {stat, "12 (a"},
                                         {stat, "12 (a) S 1 2 3"},
                                         {std::string(), own},
                                         {"cpu  10 2", own},
                                         {"intr 1 2 3 4 5 6 7 8 9", own}}) {
    Write("/proc/stat", machine);
    Write("/proc/self/stat", process);
    EXPECT_FALSE(Read().has_value()) << machine << process;
  }
  Write("/proc/stat", stat);
  Write("/proc/self/stat", own);
  EXPECT_TRUE(Read().has_value());
}

TEST(ShareOfOthers, ExcludesTheTimeOfThisProcess) {
  const ProcessorTimes before = {.own = 100, .busy = 1000, .total = 5000};
  EXPECT_EQ(ShareOfOthers(before, {.own = 150, .busy = 1050, .total = 5100}), 0.0);
  EXPECT_EQ(ShareOfOthers(before, {.own = 150, .busy = 1080, .total = 5100}), 0.3);
  EXPECT_EQ(ShareOfOthers(before, {.own = 100, .busy = 1100, .total = 5100}), 1.0);
  // The two files do not count their ticks at the same instant, so `own` can grow faster than
  // `busy`.
  EXPECT_EQ(ShareOfOthers(before, {.own = 160, .busy = 1050, .total = 5100}), 0.0);
  EXPECT_EQ(ShareOfOthers(before, before), 0.0);
}

TEST(IsDisturbed, NeedsAShareAndSomeTicks) {
  const ProcessorTimes before = {.own = 0, .busy = 0, .total = 0};
  EXPECT_TRUE(IsDisturbed(before, {.own = 50, .busy = 61, .total = 100}));
  EXPECT_FALSE(IsDisturbed(before, {.own = 50, .busy = 60, .total = 100}));
  EXPECT_FALSE(IsDisturbed(before, {.own = 5, .busy = 10, .total = 12}));
  EXPECT_FALSE(IsDisturbed(before, before));
}

TEST(LoadWatch, ReadsTheShareSinceItsConstruction) {
  const OtherLoad load = LoadWatch().Read();
  ASSERT_TRUE(load.share.has_value());
  EXPECT_GE(*load.share, 0.0);
  EXPECT_LE(*load.share, 1.0);
  EXPECT_FALSE(load.is_disturbing);  // too few ticks have passed
}

}  // namespace
}  // namespace tandem
