#include "engine/generation_config.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

TEST(GenerationConfig, SetsSamplingParameters) {
  const auto params = ParseGenerationConfig(
      R"({"do_sample": true, "temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0.1,
          "repetition_penalty": 1.05, "eos_token_id": [1, 2], "max_new_tokens": 2048})",
      "f");
  ASSERT_TRUE(params.ok()) << params.status();
  EXPECT_EQ(params->temperature, 0.6f);
  EXPECT_EQ(params->top_p, 0.95f);
  EXPECT_EQ(params->top_k, 20);
  EXPECT_EQ(params->min_p, 0.1f);
  EXPECT_EQ(params->repetition_penalty, 1.05f);
  // Without do_sample, it samples.
  EXPECT_EQ(ParseGenerationConfig(R"({"temperature": 0.6})", "f")->temperature, 0.6f);
  EXPECT_EQ(ParseGenerationConfig(R"({"temperature": null})", "f")->temperature, 1.0f);
  EXPECT_TRUE(
      ParseGenerationConfig(R"({"do_sample": false, "temperature": 0.6})", "f")->is_greedy());
}

TEST(GenerationConfig, ErrorsNameFileAndField) {
  for (const char* text :
       {R"({"temperature": "hot"})", R"({"top_p": 2})", R"({"top_k": 1.5})", R"({"top_k": -1})",
        R"({"do_sample": 1})", R"({"repetition_penalty": 0})", "[]", "{"}) {
    const auto params = ParseGenerationConfig(text, "folder/generation_config.json");
    ASSERT_FALSE(params.ok()) << text;
    EXPECT_THAT(std::string(params.status().message()),
                HasSubstr("folder/generation_config.json: "));
  }
}

TEST(GenerationConfig, IsReadFromTheModelsFolder) {
  const std::string folder = absl::StrCat(testing::TempDir(), "/generation_config_", getpid());
  std::filesystem::create_directories(folder);
  EXPECT_EQ(ReadGenerationConfig(folder)->temperature, 1.0f);
  std::ofstream(folder + "/generation_config.json") << R"({"temperature": 0.25})";
  EXPECT_EQ(ReadGenerationConfig(folder)->temperature, 0.25f);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tandem
