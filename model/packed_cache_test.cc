#include "model/packed_cache.h"

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log_testing.h"
#include "base/output_folder.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/folder_testing.h"
#include "tests/packed_testing.h"
#include "tests/status_testing.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class PackedCache : public FolderTest {
 protected:
  std::string Pack(absl::string_view name, int hours, absl::string_view model = "/m/a.gguf") const {
    return WritePacked(*this, name, hours, model);
  }
  std::vector<std::string> Packed() const {
    std::vector<std::string> paths;
    for (const CachedFile& file : PackedFilesIn(folder_)) paths.push_back(file.path);
    return paths;
  }
};

TEST_F(PackedCache, ListsPackedFilesOnlyTheLeastRecentlyUsedFirst) {
  EXPECT_TRUE(PackedFilesIn(Path("no such folder")).empty());
  const std::string young = Pack("young", 1, "/m/two words/model.safetensors");
  const std::string old = Pack("old", 5);
  const std::string cut_off = Pack("cut", 9);
  fs::resize_file(cut_off, 100);
  Aged(cut_off, 9);
  for (const char* const other :
       {"a-0123456789abcdef.safetensors", "b-0123456789abcdef.safetensors"}) {
    Write(other, *other == 'a' ? std::string("\2\0\0\0\0\0\0\0{}weights", 17) : std::string());
  }
  fs::rename(Pack("x", 1), Path("renamed.txt"));
  fs::create_symlink(young, Path("link-0123456789abcdef.safetensors"));
  fs::create_directory(Path("folder-0123456789abcdef.safetensors"));
  const std::vector<CachedFile> files = PackedFilesIn(folder_);
  EXPECT_THAT(Packed(), ElementsAre(cut_off, old, young));
  ASSERT_EQ(files.size(), 3);
  EXPECT_EQ(files[0].bytes, 100);
  EXPECT_EQ(files[1].model, "/m/a.gguf");
  EXPECT_EQ(files[2].model, "/m/two words");
  EXPECT_LT(files[1].last_used, files[2].last_used);
}

TEST_F(PackedCache, KeepsAFileThatIsBeingWritten) {
  const std::string name = "m-0123456789abcdef.safetensors";
  const std::string left = Write(name + ".00abcd.part", "of a killed process");
  ASSERT_OK_AND_ASSIGN(auto folder, OutputFolder::Around(Path(name)));
  ASSERT_OK_AND_ASSIGN(auto part, folder.NewPart(name));
  const std::vector<CachedFile> files = PackedFilesIn(folder_);
  ASSERT_EQ(files.size(), 2);
  for (const CachedFile& file : files) {
    EXPECT_TRUE(file.is_unfinished);
    const absl::Status status = RemoveCachedFile(file);
    EXPECT_EQ(status.ok(), file.path == left) << status;
    EXPECT_EQ(fs::exists(file.path), file.path != left);
  }
  EXPECT_EQ(RemoveCachedFile({.path = part.path(), .is_unfinished = true}),
            absl::UnavailableError(part.path() + ": is being written"));
}

TEST_F(PackedCache, TheLimitRemovesTheLeastRecentlyUsedOthers) {
  const std::string old = Pack("old", 5);
  const std::string older = Pack("older", 6);
  const std::string oldest = Pack("oldest", 7);
  const std::string newest = Pack("newest", 8);  // the clock was set back
  const std::string other = Aged(Write("other.safetensors", std::string(9000, 'x')), 9);
  EXPECT_TRUE(LimitPackedFiles(newest, 0).ok());
  EXPECT_TRUE(LimitPackedFiles(newest, 4000).ok());
  EXPECT_THAT(Packed(), ElementsAre(newest, oldest, older, old));
  MarkPackedUsed(oldest);
  LogCapture log;
  EXPECT_TRUE(LimitPackedFiles(newest, 2999).ok());
  EXPECT_THAT(Packed(), ElementsAre(newest, oldest));
  EXPECT_THAT(log.text(), HasSubstr(absl::StrCat("removed ", older, ": 1000 bytes, last used ")));
  EXPECT_THAT(log.text(), HasSubstr(absl::StrCat("removed ", old, ": ")));
  EXPECT_TRUE(fs::exists(other));
}

TEST_F(PackedCache, AFileLargerThanTheLimitIsNotKept) {
  const std::string old = Pack("old", 5);
  const std::string newest = Pack("newest", 0);
  EXPECT_EQ(LimitPackedFiles(newest, 999),
            absl::ResourceExhaustedError(absl::StrCat(
                "packed_weights_size: must be at least 1000 to keep ", newest, ", got 999")));
  EXPECT_THAT(Packed(), ElementsAre(old));
}

}  // namespace
}  // namespace tandem
