#include "base/check.h"

#include "gtest/gtest.h"

namespace tandem {
namespace {

TEST(CheckDeathTest, EndsTheProcessAndNamesTheCondition) {
  TANDEM_CHECK(1 + 1 == 2);
  EXPECT_DEATH(TANDEM_CHECK(1 + 1 == 3), "check_test.cc:[0-9]+: check failed: 1 \\+ 1 == 3");
}

TEST(CheckDeathTest, HotLoopsCheckOnlyUnderSanitizersAndInDebugBuilds) {
  int num_evaluated = 0;
  TANDEM_DCHECK(++num_evaluated > 0);
#ifdef TANDEM_DCHECKS
  EXPECT_EQ(num_evaluated, 1);
  EXPECT_DEATH(TANDEM_DCHECK(num_evaluated == 3), "check failed: num_evaluated == 3");
#else
  EXPECT_EQ(num_evaluated, 0);
#endif
}

}  // namespace
}  // namespace tandem
