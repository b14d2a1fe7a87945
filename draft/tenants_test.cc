#include "draft/tenants.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

constexpr int64_t kTenantBytes = int64_t{16} << 20;

CacheSalt Salt(std::string text) { return std::make_shared<const std::string>(std::move(text)); }

TEST(Tenants, AreTheSameByTheirSalt) {
  Tenants tenants(kTenantBytes);
  EXPECT_EQ(tenants.num_tenants(), 0);
  EXPECT_EQ(tenants.bytes_in_use(), 0);
  const auto a = tenants.Get(Salt("a"));
  EXPECT_EQ(tenants.Get(Salt("a")), a);
  EXPECT_NE(tenants.Get(Salt("b")), a);
  EXPECT_NE(tenants.Get(nullptr), a);
  EXPECT_EQ(tenants.Get(nullptr), tenants.Get(nullptr));
  EXPECT_EQ(tenants.num_tenants(), 3);
  a->memory->Learn({1, 2}, 1);
  EXPECT_EQ(a->memory->Find({1}).token, 2);
  EXPECT_EQ(tenants.Get(Salt("b"))->memory->Find({1}).run, 0);
  EXPECT_EQ(tenants.Get(nullptr)->memory->Find({1}).run, 0);
  EXPECT_NE(a->speculation, nullptr);
  EXPECT_EQ(tenants.Get(nullptr)->speculation, nullptr);
}

// All shares together are no more than was said, whoever comes and however many; sequences of a
// tenant that had to leave go on without.
TEST(Tenants, ShareABoundedMemory) {
  Tenants tenants(kTenantBytes);
  const auto first = tenants.Get(Salt("first"));
  const auto unsalted = tenants.Get(nullptr);
  EXPECT_GT(unsalted->memory->bytes(), kTenantBytes * 15 / 32);
  const auto kept = tenants.Get(Salt("kept"));
  for (int i = 0; i < 3 * Tenants::kMostSalted; ++i) {
    tenants.Get(Salt(absl::StrCat(i)));
    EXPECT_EQ(tenants.Get(Salt("kept")), kept);
    EXPECT_LE(tenants.bytes_in_use(), kTenantBytes);
  }
  EXPECT_EQ(tenants.num_tenants(), Tenants::kMostSalted + 1);
  EXPECT_EQ(first->memory, nullptr);
  EXPECT_NE(tenants.Get(Salt("first")), first);
  EXPECT_NE(kept->memory, nullptr);
  EXPECT_EQ(tenants.Get(nullptr), unsalted);
}

TEST(Tenants, RememberNothingInNoMemory) {
  Tenants tenants(0);
  EXPECT_EQ(tenants.Get(nullptr)->memory, nullptr);
  EXPECT_EQ(tenants.Get(Salt("a"))->memory, nullptr);
  EXPECT_NE(tenants.Get(Salt("a"))->speculation, nullptr);
  EXPECT_EQ(tenants.bytes_in_use(), 0);
}

}  // namespace
}  // namespace tandem
