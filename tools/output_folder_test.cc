#include "tools/output_folder.h"

#include <fcntl.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/mapped_file.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

class OutputFolderTest : public ::testing::Test {
 protected:
  OutputFolderTest() {
    std::string pattern = (fs::temp_directory_path() / "output_folder_XXXXXX").string();
    root_ = mkdtemp(pattern.data());
  }
  ~OutputFolderTest() override { fs::remove_all(root_); }
  std::string Path(const std::string& name) const { return (root_ / name).string(); }
  // Makes `folder` with a file in it, keeping it or not.
  void Make(const std::string& folder, bool keep) {
    absl::StatusOr<OutputFolder> output = OutputFolder::Create(Path(folder));
    ASSERT_TRUE(output.ok()) << output.status();
    absl::StatusOr<OutputFile> file = output->NewFile("a");
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE(file->Write("some ").ok() && file->Write("text").ok() && file->Close().ok());
    if (keep) output->Keep();
  }

  fs::path root_;
};

TEST_F(OutputFolderTest, KeepsWhatIsKept) {
  Make("parent/new", true);
  EXPECT_EQ(*ReadFile(Path("parent/new/a")), "some text");
}

TEST_F(OutputFolderTest, RemovesWhatItMadeAndNothingElse) {
  Make("new", false);
  EXPECT_FALSE(fs::exists(Path("new")));

  fs::create_directory(Path("old"));
  Make("old", false);
  EXPECT_TRUE(fs::is_empty(Path("old")));

  {
    absl::StatusOr<OutputFolder> output = OutputFolder::Create(Path("shared"));
    ASSERT_TRUE(output.ok());
    ASSERT_TRUE(output->NewFile("a").ok());
    std::ofstream(Path("shared/b")) << "of somebody else";
  }
  EXPECT_FALSE(fs::exists(Path("shared/a")));
  EXPECT_EQ(*ReadFile(Path("shared/b")), "of somebody else");
}

TEST_F(OutputFolderTest, DoesNotTakeAFileThatAppearedMeanwhile) {
  {
    absl::StatusOr<OutputFolder> output = OutputFolder::Create(Path("new"));
    ASSERT_TRUE(output.ok());
    std::ofstream(Path("new/a")) << "of somebody else";
    EXPECT_EQ(output->NewFile("a").status().code(), absl::StatusCode::kAlreadyExists);
  }
  EXPECT_EQ(*ReadFile(Path("new/a")), "of somebody else");
}

TEST_F(OutputFolderTest, AFullDeviceIsResourceExhausted) {
  const int descriptor = open("/dev/full", O_WRONLY);
  if (descriptor < 0) GTEST_SKIP() << "no /dev/full here";
  OutputFile file("full", descriptor);
  EXPECT_EQ(file.Write("text").code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace tandem
