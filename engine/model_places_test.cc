#include "tandem/model_places.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;

const KnownModel& Known() { return KnownModels().front(); }

// Each test has its own empty cache, which the environment names.
class ModelPlaces : public testing::Test {
 protected:
  void SetUp() override {
    std::string path = testing::TempDir() + "/model_places.XXXXXX";
    ASSERT_NE(mkdtemp(path.data()), nullptr);
    cache_ = path;
    setenv("TANDEM_MODEL_CACHE", cache_.c_str(), 1);
  }
  void TearDown() override {
    unsetenv("TANDEM_MODEL_CACHE");
    fs::remove_all(cache_);
  }

  // Creates a sparse file of the known model's name and size. Returns its folder.
  std::string Fetch() const {
    const fs::path folder = cache_ / Known().name;
    fs::create_directories(folder);
    std::ofstream(folder / Known().file) << "GGUF";
    fs::resize_file(folder / Known().file, static_cast<uintmax_t>(Known().bytes));
    return folder.string();
  }

  fs::path cache_;
};

TEST_F(ModelPlaces, NamesMeanFoldersUnlessAPathOfThatNameExists) {
  EXPECT_EQ(*ModelNamed(""), "");
  EXPECT_EQ(*ModelNamed(cache_.string()), cache_.string());
  const std::string folder = Fetch();
  EXPECT_EQ(*ModelNamed(Known().name), folder);
  for (const std::string name : {kStoryPair.target, kStoryPair.draft, Known().draft}) {
    EXPECT_FALSE(fs::is_empty(*ModelNamed(name))) << name;
  }
  const fs::path before = fs::current_path();
  fs::current_path(cache_);  // contains a folder of the model's name
  EXPECT_EQ(*ModelNamed(Known().name), Known().name);
  fs::current_path(before);
}

TEST_F(ModelPlaces, ErrorsNameWhatIsAllowed) {
  const absl::Status unfetched = ModelNamed(Known().name).status();
  EXPECT_TRUE(absl::IsNotFound(unfetched));
  EXPECT_THAT(std::string(unfetched.message()), HasSubstr("`tandem fetch smollm2`"));
  const absl::Status unknown = ModelNamed("no-such-model").status();
  EXPECT_TRUE(absl::IsNotFound(unknown));
  EXPECT_EQ(unknown.message(),
            "no-such-model: no such model, allowed: a folder, a GGUF file, or a name (`tandem "
            "fetch`)");
  EXPECT_THAT(std::string(ModelNamed("smolm2").status().message()),
              HasSubstr("smolm2: no such model, did you mean smollm2? allowed: "));
}

TEST_F(ModelPlaces, KnownModelsAreRecognisedByTheirFile) {
  const std::string folder = Fetch();
  const std::string file = absl::StrCat(folder, "/", Known().file);
  EXPECT_EQ(KnownModelAt(folder), &Known());
  EXPECT_EQ(KnownModelAt(file), &Known());
  EXPECT_EQ(KnownModelAt(cache_.string()), nullptr);
  fs::resize_file(file, static_cast<uintmax_t>(Known().bytes - 1));
  EXPECT_EQ(KnownModelAt(folder), nullptr);
}

TEST_F(ModelPlaces, ATargetGivenByNameSetsItsKnownDraft) {
  const std::string folder = Fetch();
  const std::string draft = *ModelNamed(Known().draft);
  EngineOptions options{.target = Known().name};
  ASSERT_TRUE(ResolveModels(&options).ok());
  EXPECT_EQ(options.target, folder);
  EXPECT_EQ(options.draft, draft);

  options = {.target = Known().name, .draft = Known().draft};
  ASSERT_TRUE(ResolveModels(&options).ok());
  EXPECT_EQ(options.draft, draft);

  // The draft is a head, which several ranks cannot run.
  options = {.target = Known().name, .tensor_parallel = 2};
  ASSERT_TRUE(ResolveModels(&options).ok());
  EXPECT_EQ(options.draft, "");

  options = {.target = kStoryPair.target, .tensor_parallel = 2};
  ASSERT_TRUE(ResolveModels(&options).ok());
  EXPECT_THAT(options.draft, EndsWith(kStoryPair.draft));
}

TEST_F(ModelPlaces, PathsAndDraftersWithoutAModelSetNoDraft) {
  const std::string folder = Fetch();
  for (const DrafterKind kind : {DrafterKind::kNone, DrafterKind::kNgram}) {
    EngineOptions options{.target = Known().name, .drafter = kind};
    ASSERT_TRUE(ResolveModels(&options).ok());
    EXPECT_EQ(options.draft, "") << NameOf(kind);
  }
  for (const std::string draft : {"self", "self:q8_0", folder.c_str()}) {
    EngineOptions options{.target = Known().name, .draft = draft};
    ASSERT_TRUE(ResolveModels(&options).ok());
    EXPECT_EQ(options.draft, draft);
  }
  EngineOptions options{.target = folder};
  ASSERT_TRUE(ResolveModels(&options).ok());
  EXPECT_EQ(options.target, folder);
  EXPECT_EQ(options.draft, "");
}

TEST_F(ModelPlaces, OptionsAreUnchangedIfAModelIsMissing) {
  Fetch();
  EngineOptions options{.target = Known().name, .draft = "no-such-draft"};
  EXPECT_THAT(std::string(ResolveModels(&options).message()),
              AllOf(HasSubstr("no-such-draft"), HasSubstr("allowed")));
  EXPECT_EQ(options.target, Known().name);
  EXPECT_EQ(options.draft, "no-such-draft");
}

}  // namespace
}  // namespace tandem
