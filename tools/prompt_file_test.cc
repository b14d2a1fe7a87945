#include "tools/prompt_file.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/folder_testing.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class PromptFileTest : public FolderTest {
 protected:
  absl::StatusOr<std::vector<Prompt>> Read(const std::string& text) const {
    return ReadPromptFile(Write("prompts.jsonl", text));
  }
  std::string ErrorOf(const std::string& text) const {
    return std::string(Read(text).status().message());
  }
};

TEST_F(PromptFileTest, ReadsTextsAndIdsAndIgnoresOtherFields) {
  const auto prompts = Read(
      "{\"prompt\": \"one\", \"task\": 7}\n\n \r\n"
      "{\"prompt_ids\": [3.0, 2147483647]}");
  ASSERT_TRUE(prompts.ok()) << prompts.status();
  ASSERT_THAT(*prompts, SizeIs(2));
  EXPECT_EQ((*prompts)[0].text, "one");
  EXPECT_THAT((*prompts)[1].ids, ElementsAre(3, 2147483647));
}

TEST_F(PromptFileTest, ErrorsNameTheLineAndTheField) {
  const std::string good = "{\"prompt\": \"one\"}\n\n";
  for (const auto& [line, message] : std::vector<std::pair<std::string, std::string>>{
           {"{", "prompts.jsonl:3: not JSON"},
           {"[]", "prompts.jsonl:3: found []"},
           {"{}", "prompts.jsonl:3: found {}"},
           {"{\"prompt\": \"a\", \"prompt_ids\": [1]}", "with one of"},
           {"{\"prompt\": 1}", ":3: prompt: found 1"},
           {"{\"prompt\": \"\"}", ":3: prompt: found \"\""},
           {"{\"prompt_ids\": []}", ":3: prompt_ids: found []"},
           {"{\"prompt_ids\": [-1]}", ":3: prompt_ids: found -1"},
           {"{\"prompt_ids\": [2147483648]}", ":3: prompt_ids: found 2147483648"},
           {"{\"prompt_ids\": [1.5]}", ":3: prompt_ids: found 1.5"}}) {
    EXPECT_THAT(ErrorOf(good + line), HasSubstr(message)) << line;
  }
  EXPECT_THAT(ErrorOf("\n\n"), HasSubstr("has no prompts"));
  EXPECT_EQ(ReadPromptFile("nowhere.jsonl").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace tandem
