#include "tandem/model_places.h"

#include <stdlib.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/folder_testing.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;

const KnownModel& Known() { return KnownModels().front(); }

// Each test has its own empty cache, which the environment names.
class ModelPlaces : public FolderTest {
 protected:
  void SetUp() override { setenv("TANDEM_MODEL_CACHE", folder_.c_str(), 1); }
  void TearDown() override { unsetenv("TANDEM_MODEL_CACHE"); }

  // Creates a sparse file of the known model's name and size. Returns its folder.
  std::string Fetch() const {
    const std::string file = Write(absl::StrCat(Known().name, "/", Known().file), "GGUF");
    fs::resize_file(file, static_cast<uintmax_t>(Known().bytes));
    return Path(Known().name);
  }
};

TEST_F(ModelPlaces, NamesMeanFoldersUnlessAPathOfThatNameExists) {
  EXPECT_EQ(*ModelNamed(""), "");
  EXPECT_EQ(*ModelNamed(folder_), folder_);
  const std::string folder = Fetch();
  EXPECT_EQ(*ModelNamed(Known().name), folder);
  for (const std::string name : {kStoryPair.target, kStoryPair.draft, Known().draft}) {
    EXPECT_FALSE(fs::is_empty(*ModelNamed(name))) << name;
  }
  const fs::path before = fs::current_path();
  fs::current_path(folder_);  // contains a folder of the model's name
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

// Lays files of a hub as Python's huggingface_hub does.
class HubPlaces : public FolderTest {
 protected:
  void SetUp() override { setenv("HF_HUB_CACHE", folder_.c_str(), 1); }
  void TearDown() override { unsetenv("HF_HUB_CACHE"); }

  static constexpr char kCommit[] = "0123456789abcdef0123456789abcdef01234567";
  std::string Snapshot() const {
    return Path(absl::StrCat("models--Org--Some-Model/snapshots/", kCommit));
  }
  void Lay(const std::string& name) const {
    const fs::path blob = Write(absl::StrCat("models--Org--Some-Model/blobs/of ", name), "x");
    fs::create_directories(Snapshot());
    fs::create_symlink(fs::path("../../blobs") / blob.filename(), fs::path(Snapshot()) / name);
  }
  void SetMain(const std::string& commit) const {
    Write("models--Org--Some-Model/refs/main", commit);
  }
  static absl::StatusOr<std::string> Find(const std::string& more = "") {
    return ModelNamed(absl::StrCat("Org/Some-Model", more));
  }
};

TEST_F(HubPlaces, NamesMeanFilesInTheCache) {
  EXPECT_EQ(Find().status().message(),
            "Org/Some-Model: was not fetched yet, and there is no folder of this name; run `tandem "
            "fetch Org/Some-Model`");
  Lay("x-Q4_0.gguf");
  EXPECT_TRUE(absl::IsNotFound(Find().status()));  // which commit is main is unknown
  EXPECT_EQ(*Find(absl::StrCat("@", kCommit)), Snapshot() + "/x-Q4_0.gguf");
  SetMain(kCommit);
  EXPECT_EQ(*Find(), Snapshot() + "/x-Q4_0.gguf");
  EXPECT_EQ(*Find(":q4_0"), Snapshot() + "/x-Q4_0.gguf");
  EXPECT_TRUE(absl::IsNotFound(Find(":Q8_0").status()));
  EXPECT_TRUE(absl::IsNotFound(Find("@other").status()));
  Lay("x-Q8_0.gguf");
  EXPECT_THAT(std::string(Find().status().message()), HasSubstr("several GGUF files"));
  EXPECT_EQ(*Find(":Q8_0"), Snapshot() + "/x-Q8_0.gguf");
  SetMain("../../elsewhere");
  EXPECT_TRUE(absl::IsNotFound(Find().status()));
}

TEST_F(HubPlaces, AFolderIsThereOnceAllOfItsWeightsAre) {
  SetMain(std::string(kCommit) + "\n");
  Lay("config.json");
  Lay("model.safetensors.index.json");
  Lay("model-00001-of-00002.safetensors");
  EXPECT_TRUE(absl::IsNotFound(Find().status()));
  Lay("model-00002-of-00002.safetensors");
  EXPECT_EQ(*Find(), Snapshot());
  fs::remove(Path("models--Org--Some-Model/blobs/of model-00002-of-00002.safetensors"));
  EXPECT_TRUE(absl::IsNotFound(Find().status()));
}

TEST_F(HubPlaces, TheCacheIsWherePythonsIs) {
  unsetenv("HF_HUB_CACHE");
  const std::string file = absl::StrCat("models--Org--Some-Model/snapshots/", kCommit, "/x.gguf");
  const std::string name = absl::StrCat("Org/Some-Model@", kCommit);
  for (const auto& [variable, inside] : std::vector<std::pair<const char*, std::string>>{
           {"HF_HOME", "hub/"}, {"XDG_CACHE_HOME", "huggingface/hub/"}}) {
    const char* const before = getenv(variable);
    const std::string kept = before == nullptr ? "" : before;
    setenv(variable, Path(variable).c_str(), 1);
    const std::string path = Write(absl::StrCat(variable, "/", inside, file), "x");
    EXPECT_EQ(*ModelNamed(name), path);
    before == nullptr ? unsetenv(variable) : setenv(variable, kept.c_str(), 1);
  }
}

TEST_F(ModelPlaces, KnownModelsAreRecognisedByTheirFile) {
  const std::string folder = Fetch();
  const std::string file = absl::StrCat(folder, "/", Known().file);
  EXPECT_EQ(KnownModelAt(folder), &Known());
  EXPECT_EQ(KnownModelAt(file), &Known());
  EXPECT_EQ(KnownModelAt(folder_), nullptr);
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
