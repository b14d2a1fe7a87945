#include "tools/bench/measuring.h"

#include <csignal>

#include "gtest/gtest.h"

namespace tandem {
namespace {

TEST(Measuring, StopsAfterCtrlC) {
  Measuring measuring;
  EXPECT_TRUE(measuring.Begin("measuring").ok());
  std::raise(SIGINT);
  EXPECT_TRUE(IsInterrupted(measuring.BeginNext("measuring")));
  EXPECT_TRUE(measuring.Print("").ok());  // results so far can still be printed
}

TEST(Measuring, BeginsAnewAfterAnInterruption) {
  {
    const Measuring interrupted;
    std::raise(SIGINT);
  }
  EXPECT_TRUE(Measuring().Begin("measuring").ok());
}

TEST(MeasuringDeathTest, ASecondCtrlCEndsTheProgram) {
  EXPECT_EXIT(
      {
        const Measuring measuring;
        std::raise(SIGINT);
        std::raise(SIGINT);
      },
      testing::KilledBySignal(SIGINT), "");
}

}  // namespace
}  // namespace tandem
