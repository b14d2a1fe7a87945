#include "base/spare_buffers.h"

#include <cstddef>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace tandem {
namespace {

TEST(SpareBuffers, ReusesABufferOfTheSameSize) {
  SpareBuffers spares;
  std::vector<std::byte> buffer = spares.Take(7);
  const std::byte* const bytes = buffer.data();
  spares.Give(std::move(buffer));
  EXPECT_NE(spares.Take(8).data(), bytes);
  EXPECT_EQ(spares.Take(7).data(), bytes);
}

}  // namespace
}  // namespace tandem
