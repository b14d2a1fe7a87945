#include "tools/table.h"

#include "gtest/gtest.h"

namespace tandem {
namespace {

TEST(Table, ColumnsAreAsWideAsTheirWidestCellAndAlignedRight) {
  Table table({"k", "ratio"});
  table.AddRow({"auto", "1.5"});
  table.AddRow({"8", "12.25"});
  EXPECT_EQ(table.ToText(),
            "   k  ratio\n"
            "auto    1.5\n"
            "   8  12.25\n");
}

TEST(TableDeathTest, RowWithoutACellForEveryHeadingFails) {
  Table table({"k", "ratio"});
  EXPECT_DEATH(table.AddRow({"1"}), "check failed");
}

}  // namespace

namespace {

TEST(Spread, HasTheMedianAndTheExtremes) {
  const Spread odd = SpreadOf({3, 1, 7});
  EXPECT_EQ(odd.median, 3);
  EXPECT_EQ(odd.low, 1);
  EXPECT_EQ(odd.high, 7);
  EXPECT_EQ(SpreadOf({4, 1, 3, 2}).median, 2.5);
  EXPECT_EQ(SpreadOf({4}).low, 4);
}

}  // namespace

}  // namespace tandem
