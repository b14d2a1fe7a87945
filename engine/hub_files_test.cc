#include "engine/hub_files.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;

TEST(HubName, HasARepositoryARevisionAndAChoice) {
  const HubName plain = *HubName::Parse("Qwen/Qwen3-0.6B");
  EXPECT_EQ(plain.repository, "Qwen/Qwen3-0.6B");
  EXPECT_EQ(plain.revision, "main");
  EXPECT_EQ(plain.choice, "");
  const HubName full = *HubName::Parse("a_b/c.d@refs/pr/1:Q4/x-00001-of-00002.gguf");
  EXPECT_EQ(full.repository, "a_b/c.d");
  EXPECT_EQ(full.revision, "refs/pr/1");
  EXPECT_EQ(full.choice, "Q4/x-00001-of-00002.gguf");
  EXPECT_EQ(HubName::Parse("a/b:x@y")->choice, "x@y");
  for (const std::string text : {"a/b", "a/b@v1", "a/b:Q4_K_M", "a/b@v1:Q4_K_M"}) {
    EXPECT_EQ(HubName::Parse(text)->Text(), text);
  }
}

TEST(HubName, IsNotAPath) {
  for (const char* text : {"",
                           "a",
                           "a/",
                           "/a",
                           "/a/b",
                           "a/b/c",
                           "./a",
                           "../a",
                           "~/a",
                           "a/b.gguf",
                           "a/tokenizer.json",
                           "a/b@",
                           "a/b:",
                           "a/b@:Q4",
                           "a/..",
                           "a--b/c",
                           "a b/c",
                           "a/b@../x",
                           "a/b:/x",
                           "a/b:x/../y",
                           "a/b:x\\y",
                           "a/b:x\ny",
                           "self:q8_0",
                           "a/b@x//y",
                           "http://a/b"}) {
    EXPECT_EQ(HubName::Parse(text), std::nullopt) << text;
  }
}

std::vector<HubFile> Files(const std::vector<std::string>& names) {
  std::vector<HubFile> files;
  for (const std::string& name : names) files.push_back({.name = name, .bytes = 4'370'000'000});
  return files;
}

// The names of the chosen files, and in front of them the path; the error's message without any.
std::vector<std::string> Chosen(const std::string& name, const std::vector<std::string>& names) {
  const absl::StatusOr<HubModel> model = ChooseModel(*HubName::Parse(name), Files(names));
  if (!model.ok()) return {std::string(model.status().message())};
  std::vector<std::string> chosen = {model->path};
  for (const HubFile& file : model->files) chosen.push_back(file.name);
  return chosen;
}

const std::vector<std::string>& Quantised() {
  static const std::vector<std::string> names = {"README.md",
                                                 "m-Q4_K_M.gguf",
                                                 "m-Q4_K_S.gguf",
                                                 "m-IQ4_XS.gguf",
                                                 "mmproj-f16.gguf",
                                                 "m-imatrix.gguf",
                                                 "Q8_0/m-Q8_0-00002-of-00002.gguf",
                                                 "Q8_0/m-Q8_0-00001-of-00002.gguf"};
  return names;
}

TEST(ChooseModel, TakesTheGgufFileOfAQuantisation) {
  EXPECT_THAT(Chosen("a/b:q4_k_m", Quantised()), ElementsAre("m-Q4_K_M.gguf", "m-Q4_K_M.gguf"));
  EXPECT_THAT(Chosen("a/b:IQ4_XS", Quantised()), ElementsAre("m-IQ4_XS.gguf", "m-IQ4_XS.gguf"));
  EXPECT_THAT(Chosen("a/b:m-Q4_K_S.gguf", Quantised()),
              ElementsAre("m-Q4_K_S.gguf", "m-Q4_K_S.gguf"));
  // A whole name wins over names that contain it, and the parts of a model belong together.
  EXPECT_THAT(Chosen("a/b:x.gguf", {"x.gguf", "y-x.gguf.gguf"}), ElementsAre("x.gguf", "x.gguf"));
  for (const std::string choice : {"Q8_0", "Q8_0/m-Q8_0-00002-of-00002.gguf", "m-q8_0"}) {
    EXPECT_THAT(Chosen(absl::StrCat("a/b:", choice), Quantised()),
                ElementsAre("Q8_0/m-Q8_0-00001-of-00002.gguf", "Q8_0/m-Q8_0-00001-of-00002.gguf",
                            "Q8_0/m-Q8_0-00002-of-00002.gguf"));
  }
  EXPECT_THAT(Chosen("a/b", {"config.json", "only.gguf"}), ElementsAre("only.gguf", "only.gguf"));
}

TEST(ChooseModel, ListsTheFilesThatItCannotChooseFrom) {
  const std::string list =
      "Q8_0/m-Q8_0 (8.74 GB), m-IQ4_XS (4.37 GB), m-Q4_K_M (4.37 GB), m-Q4_K_S (4.37 GB)";
  EXPECT_THAT(Chosen("a/b", Quantised()),
              ElementsAre(absl::StrCat("a/b: has several GGUF files, choose one as in a/b:Q4_K_M, "
                                       "found: ",
                                       list)));
  // Neither the beginning of a word nor its end is enough.
  for (const std::string choice : {"Q4_K", "4_K_M", "Q4_XS"}) {
    EXPECT_THAT(Chosen(absl::StrCat("a/b:", choice), Quantised()),
                ElementsAre(absl::StrCat("a/b:", choice, ": \"", choice,
                                         "\" is in the name of no GGUF file, found: ", list)));
  }
  EXPECT_THAT(Chosen("a/b", {"m-Q4_K_M.gguf", "m-Q4_K_S.gguf"}),
              ElementsAre(EndsWith("found: Q4_K_M (4.37 GB), Q4_K_S (4.37 GB)")));
  EXPECT_THAT(Chosen("a/b:Q8_0", {"m-Q4_0.gguf"}), ElementsAre(EndsWith("m-Q4_0 (4.37 GB)")));
  EXPECT_THAT(Chosen("a/b", {"README.md", "mmproj.gguf", "onnx/model.onnx"}),
              ElementsAre("a/b: has no model.safetensors and no GGUF file that Tandem could read"));
  EXPECT_THAT(Chosen("a/b:Q8_0", {"config.json", "model.safetensors"}),
              ElementsAre("a/b:Q8_0: has no GGUF file that Tandem could read"));
  EXPECT_THAT(Chosen("a/b", {"x-00001-of-00003.gguf", "x-00003-of-00003.gguf"}),
              ElementsAre("a/b: x: found 2 parts, allowed: all 3"));
  EXPECT_THAT(Chosen("a/b", {"../x.gguf"}), ElementsAre(HasSubstr("found a file \"../x.gguf\"")));
}

TEST(ChooseModel, TakesTheFolderOfATransformersModel) {
  EXPECT_THAT(
      Chosen("a/b", {"README.md", "config.json", "model.safetensors", "pytorch_model.bin",
                     "tokenizer.json", "onnx/model.safetensors", "chat_template.jinja", "x.gguf",
                     "additional_chat_templates/tool_use.jinja", "consolidated.safetensors"}),
      ElementsAre("", "config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja",
                  "additional_chat_templates/tool_use.jinja"));
  EXPECT_THAT(Chosen("a/b", {"config.json", "model-00002-of-00002.safetensors",
                             "model-00001-of-00002.safetensors", "model.safetensors.index.json",
                             "consolidated.safetensors", "generation_config.json"}),
              ElementsAre("", "config.json", "model.safetensors.index.json",
                          "model-00002-of-00002.safetensors", "model-00001-of-00002.safetensors",
                          "generation_config.json"));
  EXPECT_THAT(Chosen("a/b", {"config.json", "model-00001-of-00002.safetensors",
                             "model.safetensors.index.json"}),
              ElementsAre("a/b: model: found 1 parts, allowed: all 2"));
  EXPECT_THAT(Chosen("a/b", {"config.json", "pytorch_model.bin"}),
              ElementsAre("", "config.json", "pytorch_model.bin"));
  EXPECT_THAT(Chosen("a/b", {"model.safetensors"}), ElementsAre(HasSubstr("has no model")));
}

}  // namespace
}  // namespace tandem
