#include "base/format.h"

#include <string>

#include "gtest/gtest.h"

namespace tandem {
namespace {

TEST(Format, TakesTextsOfAnyLength) {
  for (const int size : {0, 511, 512, 5000}) {
    const std::string text(size, 'a');
    EXPECT_EQ(tandem::Format("%s %d", text, 7), text + " 7");
  }
}

TEST(DecimalSize, HasThreeDigits) {
  EXPECT_EQ(DecimalSize(0), "0 bytes");
  EXPECT_EQ(DecimalSize(999), "999 bytes");
  EXPECT_EQ(DecimalSize(1'000), "1.00 kB");
  EXPECT_EQ(DecimalSize(9'994), "9.99 kB");
  EXPECT_EQ(DecimalSize(9'996), "10.0 kB");
  EXPECT_EQ(DecimalSize(999'600), "1.00 MB");
  EXPECT_EQ(DecimalSize(98'362'432), "98.4 MB");
  EXPECT_EQ(DecimalSize(99'960'000), "100 MB");
  EXPECT_EQ(DecimalSize(999'499'999), "999 MB");
  EXPECT_EQ(DecimalSize(4'370'000'000), "4.37 GB");
  EXPECT_EQ(DecimalSize(1'234'000'000'000), "1234 GB");
}

}  // namespace
}  // namespace tandem
