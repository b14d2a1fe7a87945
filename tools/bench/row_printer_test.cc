#include "tools/bench/row_printer.h"

#include "gtest/gtest.h"

namespace tandem {
namespace {

constexpr Column kSome[] = {{"op", "op", nullptr, 1, 6},
                            {"rows", "rows"},
                            {"context", "context"},
                            {"shape", "shape"},
                            {"ms", "ms", "%.2f", 1e3}};

TEST(RowPrinter, PrintsHeadingsWithTheFirstRow) {
  Measuring measuring;
  RowPrinter printer(kSome, &measuring);
  EXPECT_EQ(printer.TextOf({{"op", "add"}, {"rows", 1}, {"shape", {3, 4}}, {"ms", 0.5}}),
            "    op  rows  shape      ms\n"
            "   add     1    3x4  500.00\n");
  EXPECT_EQ(printer.TextOf({{"op", "matmul"}, {"rows", 16}, {"ms", nullptr}}),
            "matmul    16              -\n");
  EXPECT_EQ(printer.TextOf({{"op", "attention"}, {"shape", {1}}, {"ms", 1.0}}),
            "attention            1  1000.00\n");
}

TEST(RowPrinter, PrintsNewHeadingsForNewFields) {
  Measuring measuring;
  RowPrinter printer(kSome, &measuring);
  EXPECT_EQ(printer.TextOf({{"op", "add"}, {"rows", 1}}),
            "    op  rows\n"
            "   add     1\n");
  EXPECT_EQ(printer.TextOf({{"op", "add"}, {"rows", 1}, {"context", 7}}),
            "\n    op  rows  context\n"
            "   add     1        7\n");
}

}  // namespace
}  // namespace tandem
