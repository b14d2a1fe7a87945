#include "engine/known_drafts.h"

#include <stdlib.h>

#include <cctype>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log_testing.h"
#include "base/source_path_testing.h"
#include "engine/hub_files.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tandem/known_models.h"
#include "tandem/model_places.h"
#include "tests/folder_testing.h"
#include "tests/gguf_builder.h"
#include "tests/golden_file.h"

namespace tandem {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> DraftsFor(const std::string& name) {
  std::vector<std::string> drafts;
  for (const KnownDraft* draft : KnownDraftsFor({name})) drafts.emplace_back(draft->draft);
  return drafts;
}

TEST(KnownDrafts, AreNamesThatCanBeFetchedAndHaveASource) {
  for (const KnownDraft& draft : KnownDrafts()) {
    EXPECT_TRUE(IsShipped(draft.draft) || HubName::Parse(draft.draft).has_value()) << draft.draft;
    for (const char c : std::string(draft.target)) EXPECT_FALSE(std::isupper(c)) << draft.target;
    EXPECT_NE(std::string(draft.source), "") << draft.draft;
    EXPECT_GT(draft.millions, 0) << draft.draft;
    EXPECT_GE(draft.accepted, 0) << draft.draft;
    EXPECT_LT(draft.accepted, 1) << draft.draft;
  }
}

TEST(KnownDrafts, AreFoundByTheTargetsName) {
  EXPECT_THAT(DraftsFor("qwen2.5-coder-1.5b-instruct-q4-k-m"),
              ElementsAre("Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF:Q4_K_M", "amd/PARD-Qwen2.5-0.5B",
                          "Qwen/Qwen2.5-0.5B-Instruct-GGUF:Q4_K_M"));
  EXPECT_EQ(DraftsFor("qwen2.5-coder-32b-instruct").front(),
            "Qwen/Qwen2.5-Coder-3B-Instruct-GGUF:Q4_0");
  EXPECT_EQ(DraftsFor("meta-llama-3.1-8b-instruct").front(), "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B");
  EXPECT_THAT(DraftsFor("smollm2-135m-instruct.q4-1"), ElementsAre("smollm2-draft"));
  EXPECT_THAT(DraftsFor("smollm2-1.7b-instruct"),
              ElementsAre("HuggingFaceTB/SmolLM2-135M-Instruct"));
  // A model is not its own draft.
  EXPECT_THAT(DraftsFor("qwen2.5-0.5b-instruct-q8-0"), ElementsAre("amd/PARD-Qwen2.5-0.5B"));
  EXPECT_THAT(DraftsFor("some-model"), IsEmpty());
}

TEST(KnownDrafts, BeginWithTheOneThatIsUsedByDefault) {
  for (const KnownModel& model : KnownModels()) {
    const auto drafts = KnownDraftsFor(NamesOfModel(model.name, model.file));
    ASSERT_FALSE(drafts.empty()) << model.name;
    EXPECT_STREQ(drafts.front()->draft, model.draft);
    EXPECT_EQ(drafts.front()->kind == KnownDraft::Kind::kHead, model.draft_is_head);
  }
}

TEST(KnownDrafts, ATargetHasTheNamesOfItsFileAndInIt) {
  const TestFolder folder;
  GgufBuilder gguf;
  gguf.keys = {{"general.architecture", GgufString("qwen2")},
               {"general.name", GgufString("Qwen2.5 1.5B Instruct")}};
  const std::string path = folder.Write("My_File.gguf", gguf.Bytes());
  EXPECT_THAT(NamesOfModel(path, path),
              ElementsAre("my-file", "my-file", "my-file", "qwen2.5-1.5b-instruct"));
  EXPECT_THAT(NamesOfModel("Qwen/Qwen3-8B-GGUF:Q4_K_M", "Qwen/Qwen3-8B-GGUF:Q4_K_M"),
              Contains("qwen3-8b"));
}

// (a + a^2 + a^3) / 3 for a = 0.8.
TEST(KnownDrafts, AcceptanceIsThatOfOneToken) {
  const KnownDraft draft = {
      .target = "", .draft = "", .accepted = (0.8 + 0.64 + 0.512) / 3, .draft_tokens = 3};
  EXPECT_NEAR(draft.Acceptance(0.5), 0.8, 1e-9);
  EXPECT_EQ((KnownDraft{.target = "", .draft = "", .accepted = 0.6}).Acceptance(0.5), 0.6);
  EXPECT_EQ((KnownDraft{.target = "", .draft = ""}).Acceptance(0.5), 0.5);
}

class AutoDraft : public FolderTest {
 protected:
  void SetUp() override { setenv("HF_HUB_CACHE", Path("hub").c_str(), 1); }
  void TearDown() override { unsetenv("HF_HUB_CACHE"); }
  std::string Choose(const std::string& target, bool may_be_head = true) {
    log_.Clear();
    return ChooseKnownDraft(target, target, may_be_head);
  }
  LogCapture log_;
};

TEST_F(AutoDraft, IsTheBestThatIsHereAndNamesABetterOne) {
  const std::string target = Write("qwen2.5-1.5b-instruct-q4_k_m.gguf", "");
  EXPECT_EQ(Choose(target), "");
  EXPECT_THAT(log_.text(), HasSubstr("draft=none reason=\"the known drafts of this target are not "
                                     "here\" better=\"tandem fetch amd/PARD-Qwen2.5-0.5B\""));
  const std::string draft = Write("qwen2.5-0.5b-instruct-q8_0.gguf", "");
  EXPECT_EQ(Choose(target), draft);
  EXPECT_THAT(log_.text(), HasSubstr("better=\"tandem fetch amd/PARD-Qwen2.5-0.5B\""));
  EXPECT_EQ(Choose(Write("other.gguf", "")), "");
  EXPECT_THAT(log_.text(), HasSubstr("draft=none reason=\"no draft is known for this target\"\n"));
}

TEST_F(AutoDraft, IsNotAHeadWhereHeadsCannotRun) {
  const std::string target = Write("SmolLM2-135M-Instruct.Q4_1.gguf", "");
  EXPECT_THAT(Choose(target), HasSubstr("smollm2-draft"));
  EXPECT_EQ(Choose(target, /*may_be_head=*/false), "");
}

TEST_F(AutoDraft, IsResolvedWithTheOtherNames) {
  EngineOptions options;
  options.target = SourcePath("models/storyteller-7m");
  options.draft = kAutoDraft;
  ASSERT_TRUE(ResolveModels(&options).ok());
  EXPECT_THAT(options.draft, HasSubstr("storyteller-1m"));
  options.draft = kAutoDraft;
  options.drafter = DrafterKind::kNgram;
  ASSERT_TRUE(ResolveModels(&options).ok());
  EXPECT_EQ(options.draft, "");
}

TEST(CompareVocabularies, SaysWhetherADraftCanBeRead) {
  const std::string target = SourcePath("models/storyteller-7m");
  const auto same = CompareVocabularies(target, SourcePath("models/storyteller-1m"));
  ASSERT_TRUE(same.ok()) << same.status();
  EXPECT_TRUE(same->is_same);
  const auto other = CompareVocabularies(target, GoldenModelPath("llama-gqa"));
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_FALSE(other->is_same);
  EXPECT_GT(other->paired, 0);
  EXPECT_LT(other->paired, other->target);
  EXPECT_FALSE(CompareVocabularies(target, "/nowhere").ok());
}

}  // namespace
}  // namespace tandem
