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

TEST(TableDeathTest, ARowMustHaveACellForEveryHeading) {
  Table table({"k", "ratio"});
  EXPECT_DEATH(table.AddRow({"1"}), "check failed");
}

}  // namespace
}  // namespace tandem
