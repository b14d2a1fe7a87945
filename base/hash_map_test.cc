#include "base/hash_map.h"

#include <iterator>
#include <string>

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

TEST(HashMap, FindsTextHoweverItIsHeld) {
  HashMap<std::string, int> map = {{"one", 1}, {"two", 2}};
  EXPECT_EQ(map.find(absl::string_view("two"))->second, 2);
  EXPECT_FALSE(map.contains(absl::string_view("three")));
  const HashSet<std::string> set = {"one"};
  EXPECT_TRUE(set.contains(absl::string_view("one")));
  const char* const literals[] = {"a", "b"};
  HashSet<absl::string_view> views;
  views.insert(std::begin(literals), std::end(literals));
  EXPECT_TRUE(views.contains(std::string("b")));
}

}  // namespace
}  // namespace tandem
