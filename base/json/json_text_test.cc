#include "base/json/json_text.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using Json = SortedJson;

TEST(JsonText, MatchesTheLibrarysParser) {
  for (const char* text :
       {"null", "true", "-3", "18446744073709551615", "1.5e3", "\"a\\u00e9\\n\"", "[]", "{}",
        "[[], {}, [1, [2, {\"a\": []}]], 3]", R"({"a": {"b": [1, "c", null]}, "": {}, "d": false})",
        R"({"b": 1, "a": {"b": 2, "a": [{"a": 1}, {"a": 2}]}})", " [ 1 , 2 ] "}) {
    const auto value = ParseJson(text, "file");
    ASSERT_TRUE(value.ok()) << text;
    EXPECT_EQ(*value, Json::parse(text)) << text;
    const auto ordered = ParseJsonValue(text, "file");
    ASSERT_TRUE(ordered.ok()) << text;
    EXPECT_EQ(ordered->dump(), JsonValue::parse(text).dump()) << text;
  }
}

TEST(JsonText, FindsAMemberWithoutTheRest) {
  const std::string text = R"({"a": {"b": "inner", "c": true}, "b": "x", "c": true, "d": false, )";
  EXPECT_EQ(TextMember(text, "b"), "x");
  EXPECT_EQ(TextMember(text, "c"), "");
  EXPECT_EQ(TextMember("not JSON", "b"), "");
  EXPECT_TRUE(FlagMember(text, "c"));
  for (const char* key : {"a", "b", "d", "e"}) EXPECT_FALSE(FlagMember(text, key)) << key;
}

TEST(JsonText, ErrorsSayWhere) {
  const struct {
    std::string text;
    const char* message;
  } cases[] = {{"", "file: not JSON in UTF-8 (cut off at byte 1)"},
               {"{\"a\": [1, ", "file: not JSON in UTF-8 (cut off at byte 11)"},
               {"[1,]", "file: not JSON in UTF-8 (at byte 4)"},
               {"[1] 2", "file: not JSON in UTF-8 (at byte 5)"},
               {"{\"a\": \"\xff\"}", "file: not JSON in UTF-8"},
               {std::string("[1]\0", 4), "file: not JSON in UTF-8 (at byte 4)"},
               {std::string("[1]\0[2]", 7), "file: not JSON in UTF-8 (at byte 4)"},
               {std::string("\0[1]", 4), "file: not JSON in UTF-8"},
               {"1e999", "file: not JSON in UTF-8"},
               {R"({"a": 1, "b": {"a": 1, "a": 2}})", "file: key \"a\" twice in one object"},
               {std::string(65, '['), "file: values nested more than 64 deep"}};
  for (const auto& c : cases) {
    const auto document = ParseJson(c.text, "file");
    EXPECT_THAT(std::string(document.status().message()), HasSubstr(c.message)) << c.text;
    const auto ordered = ParseJsonValue(c.text, "file");
    EXPECT_THAT(std::string(ordered.status().message()), HasSubstr(c.message)) << c.text;
  }
  EXPECT_TRUE(ParseJson(std::string(64, '[') + std::string(64, ']'), "file").ok());
  EXPECT_TRUE(ParseJsonValue(std::string(64, '[') + std::string(64, ']'), "file").ok());
}

// Comparing each of a million keys with all earlier ones would take an hour.
TEST(JsonText, AMillionKeysAreCheckedQuickly) {
  std::string text = "{";
  for (int i = 0; i < 1'000'000; ++i) absl::StrAppend(&text, "\"", i, "\":0,");
  const auto value = ParseJsonValue(text + "\"last\":1}", "file");
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(value->size(), 1'000'001u);
  EXPECT_EQ(value->begin().key(), "0");
  const auto twice = ParseJsonValue(text + "\"999999\":1}", "file");
  EXPECT_THAT(std::string(twice.status().message()), HasSubstr("key \"999999\" twice"));
}

}  // namespace
}  // namespace tandem
