#include "base/named_values.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace tandem {
namespace {

using Names = std::vector<std::string>;
const Names kNames = {"generate", "chat", "fetch", "bench", "temperature"};

TEST(NearestName, AllowsOneMistakeForEveryThreeCharacters) {
  EXPECT_EQ(NearestName("generate", kNames), "generate");
  EXPECT_EQ(NearestName("genrate", kNames), "generate");
  EXPECT_EQ(NearestName("geenrate", kNames), "generate");
  EXPECT_EQ(NearestName("gneraet", kNames), "generate");
  EXPECT_EQ(NearestName("cha", kNames), "chat");
  EXPECT_EQ(NearestName("caht", kNames), "chat");
  EXPECT_EQ(NearestName("ehct", kNames), "");
  EXPECT_EQ(NearestName("frobnicate", kNames), "");
}

TEST(NearestName, CompletesAPrefix) {
  EXPECT_EQ(NearestName("temp", kNames), "temperature");
  EXPECT_EQ(NearestName("te", kNames), "");
}

TEST(NearestName, IsTheNearestOfSeveralAndTheFirstOfEquals) {
  EXPECT_EQ(NearestName("betch", kNames), "fetch");
  EXPECT_EQ(NearestName("bcnch", Names{"launch", "bench"}), "bench");
  EXPECT_EQ(NearestName("cart", Names{"cast", "card"}), "cast");
}

TEST(NearestName, IsEmptyWithoutACandidate) {
  EXPECT_EQ(NearestName("", kNames), "");
  EXPECT_EQ(NearestName("a", Names{"b"}), "");
  EXPECT_EQ(NearestName("chat", {}), "");
}

}  // namespace
}  // namespace tandem
