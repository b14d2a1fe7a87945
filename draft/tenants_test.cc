#include "draft/tenants.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

using Tokens = std::vector<TokenId>;

constexpr size_t kMemoryBytes = 1 << 20;

void LearnAll(TextMemory* memory, const Tokens& text) {
  memory->Learn(text, static_cast<int>(text.size()));
}

Tokens Counting(TokenId first, int count) {
  Tokens tokens;
  for (int i = 0; i < count; ++i) tokens.push_back(first + i);
  return tokens;
}

TEST(TextMemory, StartsEmpty) {
  const TextMemory memory(kMemoryBytes);
  EXPECT_EQ(memory.Find({}).run, 0);
  EXPECT_EQ(memory.Find({1, 2, 3}).run, 0);
  EXPECT_LE(memory.bytes(), kMemoryBytes);
}

TEST(TextMemory, UsesTheLongestKnownRun) {
  TextMemory memory(kMemoryBytes);
  LearnAll(&memory, Counting(100, 20));
  LearnAll(&memory, {50, 104, 105, 7});
  const auto next = [&](const Tokens& text) {
    const TextMemory::Next found = memory.Find(text);
    return std::vector<int>{found.token, found.run};
  };
  EXPECT_THAT(next({105}), testing::ElementsAre(7, 1));
  EXPECT_THAT(next({104, 105}), testing::ElementsAre(7, 2));
  EXPECT_THAT(next({50, 104, 105}), testing::ElementsAre(7, 3));
  EXPECT_THAT(next({103, 104, 105}), testing::ElementsAre(106, 3));
  EXPECT_THAT(next({0, 102, 103, 104, 105}), testing::ElementsAre(106, 3));
  EXPECT_THAT(next({101, 102, 103, 104, 105}), testing::ElementsAre(106, 5));
  EXPECT_THAT(next(Counting(100, 10)), testing::ElementsAre(110, 8));
  EXPECT_THAT(next({119}), testing::ElementsAre(0, 0));
}

// A single different continuation does not replace the usual one; repeated ones do.
TEST(TextMemory, KeepsTheUsualContinuation) {
  TextMemory memory(kMemoryBytes);
  LearnAll(&memory, {1, 2});
  EXPECT_FALSE(memory.Find({1}).is_usual);
  LearnAll(&memory, {1, 2});
  LearnAll(&memory, {1, 3});
  EXPECT_EQ(memory.Find({1}).token, 2);
  LearnAll(&memory, {1, 2});
  EXPECT_TRUE(memory.Find({1}).is_usual);
  for (int i = 0; i < 1000; ++i) LearnAll(&memory, {1, 2});
  for (int i = 0; i < 10; ++i) LearnAll(&memory, {1, 4});
  EXPECT_EQ(memory.Find({1}).token, 4);
}

TEST(TextMemory, LearnsOnlyTheLastTokens) {
  TextMemory memory(kMemoryBytes);
  memory.Learn({1, 2, 3, 4}, 1);
  EXPECT_EQ(memory.Find({1}).run, 0);
  EXPECT_EQ(memory.Find({2}).run, 0);
  EXPECT_EQ(memory.Find({1, 2, 3}).token, 4);
  memory.Learn({5, 6}, 0);
  EXPECT_EQ(memory.Find({5}).run, 0);
}

TEST(TextMemory, LearnsSuccessorsOnlyOfShortRuns) {
  TextMemory memory(kMemoryBytes);
  memory.LearnSuccessor({1, 2, 3}, 4);
  EXPECT_EQ(memory.Find({1, 2, 3}).run, 2);
  EXPECT_EQ(memory.Find({1, 2, 3}).token, 4);
  EXPECT_EQ(memory.Find({3}).token, 4);
  memory.LearnSuccessor({9}, 8);
  EXPECT_EQ(memory.Find({9}).token, 8);
}

// The memory keeps its size however much it learns, and holds the latest text.
TEST(TextMemory, IsBounded) {
  TextMemory memory(TextMemory::kMinBytes);
  const size_t bytes = memory.bytes();
  EXPECT_LE(bytes, TextMemory::kMinBytes);
  for (int i = 0; i < 500; ++i) LearnAll(&memory, Counting(1000 * i, 100));
  EXPECT_EQ(memory.bytes(), bytes);
  const Tokens last = Counting(7000000, 40);
  LearnAll(&memory, last);
  EXPECT_EQ(memory.Find(last).run, 0);
  EXPECT_EQ(memory.Find(Counting(7000000, 38)).token, 7000038);
}

constexpr int64_t kTenantBytes = int64_t{16} << 20;

CacheSalt Salt(std::string text) { return std::make_shared<const std::string>(std::move(text)); }

TEST(Tenants, AreKeyedBySalt) {
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

// All shares together stay within the limit, however many tenants there are. Sequences of an
// evicted tenant continue without a memory.
TEST(Tenants, ShareABoundedMemory) {
  Tenants tenants(kTenantBytes);
  const auto first = tenants.Get(Salt("first"));
  const auto unsalted = tenants.Get(nullptr);
  EXPECT_GT(unsalted->memory->bytes(), kTenantBytes * 15 / 32);
  const auto kept = tenants.Get(Salt("kept"));
  for (int i = 0; i < 3 * Tenants::kMaxSaltedTenants; ++i) {
    tenants.Get(Salt(absl::StrCat(i)));
    EXPECT_EQ(tenants.Get(Salt("kept")), kept);
    EXPECT_LE(tenants.bytes_in_use(), kTenantBytes);
  }
  EXPECT_EQ(tenants.num_tenants(), Tenants::kMaxSaltedTenants + 1);
  EXPECT_EQ(first->memory, nullptr);
  EXPECT_NE(tenants.Get(Salt("first")), first);
  EXPECT_NE(kept->memory, nullptr);
  EXPECT_EQ(tenants.Get(nullptr), unsalted);
}

TEST(Tenants, HaveNoMemoryWithZeroBytes) {
  Tenants tenants(0);
  EXPECT_EQ(tenants.Get(nullptr)->memory, nullptr);
  EXPECT_EQ(tenants.Get(Salt("a"))->memory, nullptr);
  EXPECT_NE(tenants.Get(Salt("a"))->speculation, nullptr);
  EXPECT_EQ(tenants.bytes_in_use(), 0);
}

}  // namespace

}  // namespace tandem
