// `tandem cache`, as users see it: it lists each file, and removes no more than it should.
#include <stdlib.h>

#include <filesystem>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/output_folder.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kvcache/store/sqlite_store.h"
#include "kvcache/store/store_testing.h"
#include "tandem/json_value.h"
#include "tandem/known_models.h"
#include "tests/packed_testing.h"
#include "tests/run_program.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;
using testing::ElementsAre;
using testing::HasSubstr;

Words PathsOf(const JsonValue& files) {
  Words paths;
  for (const auto& file : files) paths.push_back(file["path"]);
  return paths;
}

// A cache of its own, which the environment names.
class CacheProgram : public FolderTest {
 protected:
  void SetUp() override { setenv("TANDEM_MODEL_CACHE", folder_.c_str(), 1); }
  void TearDown() override { unsetenv("TANDEM_MODEL_CACHE"); }

  // Writes two packed files, a file of learned state that was last used between them, and a file
  // of another program.
  void Fill() {
    old_ = WritePacked(*this, "packed/old", 72);
    learned_ = Aged(
        Write("packed/speculation-0123456789abcdef.txt", "tandem learned speculation 2\n"), 48);
    young_ = WritePacked(*this, "packed/young", 1);
    Aged(Write("packed/notes.safetensors", "of another program"), 99);
  }
  bool AreLeft(const Words& paths) const {
    int num_found = 0;
    for (const std::string& path : paths) num_found += fs::exists(path) ? 1 : 0;
    const auto num_files = std::distance(fs::directory_iterator(Path("packed")), {});
    return num_found == std::ssize(paths) && num_files == num_found + 1;
  }

  std::string old_, learned_, young_;
};

TEST_F(CacheProgram, SaysWhereItLookedIfThereIsNothing) {
  EXPECT_EQ(RunProgram({"cache"}).out, absl::StrCat("no files in ", folder_, "/packed, and no ",
                                                    "fetched models in ", folder_, "\n"));
  EXPECT_EQ(RunJson({"cache"})["files"].size(), 0);
  EXPECT_EQ(RunProgram({"cache", "prune", "--to-size", "0"}).out,
            absl::StrCat("removed 0 files, 0 bytes, from ", folder_, "/packed\n"));
}

TEST_F(CacheProgram, ListsFilesWithTheirSizeUseAndModel) {
  Fill();
  const KnownModel& known = KnownModels().front();
  const std::string fetched = Write(absl::StrCat(known.name, "/", known.file), "GGUF");
  const auto json = RunJson({"cache"});
  EXPECT_EQ(json["folder"], folder_ + "/packed");
  EXPECT_THAT(PathsOf(json["files"]), ElementsAre(old_, young_, learned_, fetched));
  EXPECT_EQ(json["bytes"], 2000 + 29 + 4);
  EXPECT_EQ(json["files"][0]["kind"], "packed");
  EXPECT_EQ(json["files"][0]["bytes"], 1000);
  EXPECT_EQ(json["files"][0]["model"], "/m/a.gguf");
  EXPECT_EQ(json["files"][2]["kind"], "learned");
  EXPECT_TRUE(json["files"][2]["model"].is_null());
  EXPECT_EQ(json["files"][3]["kind"], "model");
  EXPECT_EQ(json["files"][3]["model"], known.name);
  const ProgramRun table = RunProgram({"cache"});
  for (const std::string& path : {old_, young_, learned_, fetched}) {
    EXPECT_THAT(table.out, HasSubstr(path));
  }
  EXPECT_THAT(table.out, HasSubstr("\n4 files, 2.03 kB\n"));
  EXPECT_THAT(RunProgram({"cache", "--packed-weights", folder_}).out, HasSubstr("1 file, "));
  // Files of learned state are many and small.
  Write("packed/speculation-1123456789abcdef.txt", "tandem learned speculation 2\n");
  const std::string many = RunProgram({"cache"}).out;
  EXPECT_THAT(many, HasSubstr("2 files"));
  EXPECT_THAT(many, testing::Not(HasSubstr(learned_)));
  EXPECT_THAT(many, HasSubstr("\n5 files, "));
  EXPECT_EQ(RunJson({"cache"})["files"].size(), 5);
}

TEST_F(CacheProgram, PrunesByAgeAndSizeTheLeastRecentlyUsedFirst) {
  Fill();
  const Words size = {"cache", "prune", "--to-size", "1K"};
  const Words both = {old_, learned_};
  EXPECT_EQ(PathsOf(RunJson(Joined(size, {"--dry-run"}))["removed"]), both);
  EXPECT_TRUE(AreLeft({old_, learned_, young_}));
  EXPECT_EQ(
      RunProgram(Joined(size, {"--packed"})).out,
      absl::StrCat("removed ", old_, "\nremoved 1 file, 1.00 kB, from ", folder_, "/packed\n"));
  EXPECT_TRUE(AreLeft({learned_, young_}));

  Fill();
  const Words age = {"cache", "prune", "--older-than", "1"};
  EXPECT_THAT(PathsOf(RunJson(Joined(age, {"--learned"}))["removed"]), ElementsAre(learned_));
  EXPECT_TRUE(AreLeft({old_, young_}));
  EXPECT_EQ(RunJson(age)["bytes"], 1000);
  EXPECT_TRUE(AreLeft({young_}));

  Fill();
  EXPECT_EQ(PathsOf(RunJson({"cache", "--prune", "2.5d"})["removed"]), Words{old_});
  EXPECT_EQ(PathsOf(RunJson({"cache", "--prune", "1K"})["removed"]), Words{learned_});
  EXPECT_TRUE(AreLeft({young_}));
  RunJson({"cache", "--prune", "0"});
  EXPECT_TRUE(AreLeft({}));
}

TEST_F(CacheProgram, NamesTheFileThatIsBeingWrittenAndKeepsIt) {
  Fill();
  const std::string name = fs::path(old_).filename().string();
  auto folder = OutputFolder::Around(old_);
  auto part = folder->NewPart(name);
  ASSERT_TRUE(part.ok()) << part.status();
  EXPECT_THAT(RunProgram({"cache"}).out, HasSubstr("unfinished"));
  EXPECT_THAT(
      RunProgram({"cache", "prune", "--to-size", "0"}).out,
      HasSubstr(absl::StrCat("kept ", part->path(), ", which is being written\nremoved 3 ")));
  EXPECT_TRUE(AreLeft({part->path()}));
}

TEST_F(CacheProgram, ListsAndPrunesANamedStore) {
  const std::string pages = Path("pages");
  {
    const auto store = *OpenSqliteStore({.folder = pages});
    const PoolId pool{};
    const TestText text(pool, 5, 3, 100);
    ASSERT_TRUE(store->Write({.id = pool, .description = "a model"}, text.pages()).ok());
  }
  EXPECT_EQ(RunJson({"cache", "--kv-store", pages})["pools"][0]["pages"], 3);
  EXPECT_THAT(RunProgram({"cache", "--kv-store", pages}).out, HasSubstr("a model"));
  const Words prune = {"cache", "prune", "--kv-store", pages, "--older-than"};
  EXPECT_EQ(RunJson(Joined(prune, {"1"}))["pages"], 0);
  EXPECT_THAT(RunProgram(Joined(prune, {"0"})).out, HasSubstr("removed 3 pages, from " + pages));
}

TEST_F(CacheProgram, RefusesWhatItCannotDo) {
  Fill();
  const std::vector<std::pair<Words, std::string>> lines = {
      {{"prune"}, "--older-than or --to-size is required; see `tandem cache prune --help`"},
      {{"prune", "--packed"}, "--older-than or --to-size is required"},
      {{"prune", "--older-than", "-1"}, "--older-than: must be from 0 to 36500, got -1"},
      {{"prune", "--to-size", "much"}, "--to-size: must be "},
      {{"--prune", "5x"},
       "--prune: must be a size, such as 5G, or an age in days, such as 30d, got 5x"},
      {{"--prune", "d"}, "got d"},
      {{"--prune", ""}, "got nothing"},
      {{"--prune", "1d", "prune", "--to-size", "0"},
       "--prune: `tandem cache prune` has no --prune"},
      {{"prune", "--kv-store", "x", "--to-size", "0"}, "--kv-store: needs --older-than, because"},
      {{"prune", "--kv-store", "x", "--older-than", "1", "--dry-run"},
       "--kv-store: cannot be combined with --dry-run"}};
  for (const auto& [words, message] : lines) {
    const ProgramRun run = RunProgram(Joined({"cache"}, words));
    ExpectRefused(run, {kExitWrongLine});
    EXPECT_THAT(run.err, HasSubstr(message));
  }
  const ProgramRun no_store = RunProgram({"cache", "--kv-store", folder_});
  ExpectRefused(no_store, {kExitFailed});
  EXPECT_THAT(no_store.err, HasSubstr(folder_ + ": must be a folder of --kv-store"));
  EXPECT_TRUE(AreLeft({old_, learned_, young_}));
}

}  // namespace
}  // namespace tandem
