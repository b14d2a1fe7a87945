#include "tools/toml_file.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/folder_testing.h"

namespace tandem {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

class TomlFile : public FolderTest {
 protected:
  absl::StatusOr<JsonValue> Read(const std::string& text) const {
    return ReadTomlFile(Write("options.toml", text));
  }
};

TEST_F(TomlFile, BecomesJsonInTheOrderOfTheFile) {
  const auto json = Read(
      "z = 1\n"
      "b = 'text' # a comment\n"
      "[serve]\nstop = ['a', \"\\u00e9\"]\nport = 8_080\njson = true\n"
      "[a.b]\nc = -0.5\n"
      "[[model]]\nname = 'one'\n[[model]]\nname = 'two'\n");
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(json->dump(), R"({"z":1,"b":"text","serve":{"stop":["a","é"],"port":8080,"json":true},)"
                          R"("a":{"b":{"c":-0.5}},"model":[{"name":"one"},{"name":"two"}]})");
  EXPECT_EQ(*Read(""), JsonValue::object());
}

TEST_F(TomlFile, ErrorsAreOneLineThatNamesFileAndLine) {
  for (const auto& [line, what] : std::vector<std::pair<std::string, std::string>>{
           {"b", "key"},
           {"b = yes", ""},
           {"b = \"one", ""},
           {"b = 'a\nb'", ""},
           {"a = 2", "redefine"},
           {"b = 2026-12-01", "dates and times are not allowed; write a string in quotes"},
           {"b = [07:30:00]", "dates and times are not allowed"},
           {"b = inf", "a number must be finite"},
           {"b = {c = nan}", "a number must be finite"},
           {"b = 99999999999999999999", ""},
           {"b = '\xff'", ""},
           {absl::StrCat("b = ", std::string(64, '['), std::string(64, ']')),
            "nests deeper than 64 values"}}) {
    const absl::Status status = Read(absl::StrCat("a = 1\n\n", line, "\n")).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << line;
    const std::string message(status.message());
    EXPECT_THAT(message, HasSubstr("options.toml:3: ")) << line;
    EXPECT_THAT(message, HasSubstr(what)) << line;
    EXPECT_THAT(message, Not(HasSubstr("\n"))) << line;
    EXPECT_THAT(message, Not(EndsWith(": "))) << line;
  }
}

TEST_F(TomlFile, MustExistAndBeSmall) {
  EXPECT_EQ(ReadTomlFile("nowhere.toml").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Read(std::string((1 << 20) + 1, '#')).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tandem
