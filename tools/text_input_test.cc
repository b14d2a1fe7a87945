#include "tools/text_input.h"

#include <sys/stat.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/folder_testing.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class TextInputTest : public FolderTest {
 protected:
  std::string Write(const std::string& text) const { return TestFolder::Write("text", text); }
  // Returns the lines of a text; for an error, its message.
  std::vector<std::string> Lines(const std::string& text) const {
    auto input = TextInput::Open(Write(text));
    std::vector<std::string> lines;
    while (const auto line = input->NextLine()) {
      lines.push_back(line->ok() ? **line : std::string(line->status().message()));
    }
    EXPECT_FALSE(input->NextLine().has_value());
    return lines;
  }
};

TEST_F(TextInputTest, ReturnsLinesUnchanged) {
  EXPECT_THAT(Lines(""), IsEmpty());
  EXPECT_THAT(Lines("\n"), ElementsAre(""));
  EXPECT_THAT(Lines("a"), ElementsAre("a"));
  EXPECT_THAT(Lines("a\n\nb \r\nc"), ElementsAre("a", "", "b \r", "c"));
  EXPECT_THAT(Lines("a\n"), ElementsAre("a"));
}

TEST_F(TextInputTest, LinesMaySpanSeveralReads) {
  std::string text;
  std::vector<std::string> expected;
  for (int i = 0; i < 300; ++i) {
    expected.push_back(std::string(i * 7 % 1000, static_cast<char>('a' + i % 26)));
    text += expected.back() + "\n";
  }
  expected.push_back(std::string(200000, 'z'));
  EXPECT_EQ(Lines(text + expected.back()), expected);
}

TEST_F(TextInputTest, HasNextLineDoesNotBlock) {
  const std::string path = Write("");
  fs::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> writer(std::fopen(path.c_str(), "r+"),
                                                         &std::fclose);
  auto input = TextInput::Open(path);
  ASSERT_TRUE(input.ok());
  const auto write = [&](const char* text) {
    std::fputs(text, writer.get());
    std::fflush(writer.get());
  };
  EXPECT_FALSE(input->HasNextLine());
  write("a");
  EXPECT_FALSE(input->HasNextLine());
  write("b\nc\nd");
  for (const char* line : {"ab", "c"}) {
    EXPECT_TRUE(input->HasNextLine());
    EXPECT_EQ(**input->NextLine(), line);
  }
  EXPECT_FALSE(input->HasNextLine());
  writer.reset();
  EXPECT_TRUE(input->HasNextLine());
  EXPECT_EQ(**input->NextLine(), "d");
  EXPECT_TRUE(input->HasNextLine());
  EXPECT_EQ(input->NextLine(), std::nullopt);
}

TEST_F(TextInputTest, ReadErrorIsReturnedOnce) {
  auto input = TextInput::Open(folder_);
  ASSERT_TRUE(input.ok());
  EXPECT_TRUE(input->HasNextLine());
  EXPECT_THAT(std::string((*input->NextLine()).status().message()), HasSubstr("cannot be read"));
  EXPECT_EQ(input->NextLine(), std::nullopt);
}

TEST_F(TextInputTest, SkipsALineThatIsTooLong) {
  const std::string longest(TextInput::kMaxBytes, 'x');
  const auto lines = Lines(longest + "y\nb\n" + longest);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_THAT(lines[0], HasSubstr("text:1: longer than the allowed 67108864 bytes"));
  EXPECT_EQ(lines[1], "b");
  EXPECT_TRUE(lines[2] == longest);
}

TEST_F(TextInputTest, ReturnsTheRestUnlessItIsTooLong) {
  auto input = TextInput::Open(Write("a\nb\nc"));
  ASSERT_TRUE(input.ok());
  EXPECT_EQ(**input->NextLine(), "a");
  EXPECT_EQ(*input->ReadRest(), "b\nc");
  EXPECT_EQ(*input->ReadRest(), "");
  auto endless = TextInput::Open("/dev/zero");
  ASSERT_TRUE(endless.ok());
  EXPECT_THAT(endless->ReadRest().status().message(), HasSubstr("/dev/zero: longer than"));
}

TEST_F(TextInputTest, ErrorsNameTheFile) {
  const auto none = TextInput::Open("/nonexistent/text");
  EXPECT_EQ(none.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(none.status().message(), HasSubstr("/nonexistent/text"));
  auto folder = TextInput::Open(folder_);
  ASSERT_TRUE(folder.ok());
  EXPECT_THAT(folder->NextLine()->status().message(), HasSubstr("cannot be read"));
  EXPECT_FALSE(folder->NextLine().has_value());
}

}  // namespace
}  // namespace tandem
