#include "base/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "tests/folder_testing.h"

namespace tandem {
namespace {

class MappedFileTest : public FolderTest {};

TEST_F(MappedFileTest, MovingKeepsTheAddressOfTheBytes) {
  const std::string contents("a\0b\xFF", 4);
  auto file = MappedFile::Open(Write("bytes", contents));
  ASSERT_TRUE(file.ok()) << file.status();
  const std::byte* const data = file->bytes().data();
  MappedFile moved = *std::move(file);
  EXPECT_EQ(moved.bytes().data(), data);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(data), moved.bytes().size()), contents);
  moved = MappedFile();
  EXPECT_TRUE(moved.bytes().empty());
}

TEST_F(MappedFileTest, EmptyFileHasNoBytes) {
  const std::string path = Write("empty", "");
  const auto file = MappedFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE(file->bytes().empty());
  EXPECT_EQ(*ReadFile(path), "");
}

// Pages that lie completely in the part are dropped; all bytes stay readable.
TEST_F(MappedFileTest, ForgottenPagesStayReadable) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::string contents(8 * page + 100, 'x');
  for (size_t i = 0; i < contents.size(); ++i) contents[i] = static_cast<char>(i % 251);
  const auto file = MappedFile::Open(Write("forgotten", contents));
  ASSERT_TRUE(file.ok());
  const auto text = [&] {
    return std::string(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
  };
  ASSERT_EQ(text(), contents);
  MappedFile::Forget(file->bytes().subspan(page + 7, 3 * page));
  MappedFile::Forget(file->bytes().subspan(10, 20));  // no whole page
  MappedFile::Forget({});
  EXPECT_EQ(text(), contents);
  file->AskForHugePages();
  EXPECT_EQ(text(), contents);
  MappedFile().AskForHugePages();
}

TEST_F(MappedFileTest, BytesStayValidAfterUnlink) {
  const std::string path = Write("unlinked", "still here");
  const auto file = MappedFile::Open(path);
  ASSERT_TRUE(file.ok());
  unlink(path.c_str());
  EXPECT_EQ(file->bytes().size(), 10u);
  EXPECT_EQ(std::to_integer<char>(file->bytes()[0]), 's');
}

TEST_F(MappedFileTest, ErrorsNameThePath) {
  const std::string missing = Path("missing");
  const auto file = MappedFile::Open(missing);
  EXPECT_EQ(file.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(file.status().message().find(missing), std::string::npos) << file.status();
  EXPECT_EQ(ReadFile(missing).status(), file.status());

  const auto folder = MappedFile::Open(folder_);
  EXPECT_EQ(folder.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(folder.status().message().find("not a regular file"), std::string::npos);

  EXPECT_FALSE(MappedFile::Open(Write("file", "x") + "/inside").ok());
  EXPECT_FALSE(MappedFile::Open("").ok());
}

TEST_F(MappedFileTest, ReadsNoFileBeyondItsBound) {
  const std::string path = Write("bounded", "seven b");
  EXPECT_EQ(*ReadFile(path, 7), "seven b");
  EXPECT_EQ(ReadFile(path, 6).status().message(), path + ": found 7 bytes, allowed: at most 6");
  truncate(path.c_str(), (int64_t{1} << 30) + 1);  // sparse: takes no room
  EXPECT_EQ(ReadFile(path).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadFile("/dev/zero").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(MappedFileTest, NamesPointersOfGitLfs) {
  const std::string path =
      Write("pointer", "version https://git-lfs.github.com/spec/v1\noid sha256:");
  for (const absl::Status& status : {MappedFile::Open(path).status(), ReadFile(path).status()}) {
    EXPECT_EQ(status.message(),
              path + ": is a Git LFS pointer, not the file itself; run git lfs pull");
  }
}

TEST_F(MappedFileTest, RejectsAPipeWithoutWaiting) {
  const std::string path = Path("pipe");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(MappedFile::Open(path).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(MappedFileTest, ReportsMissingPermission) {
  if (geteuid() == 0) GTEST_SKIP() << "root may read everything";
  const std::string path = Write("secret", "x");
  ASSERT_EQ(chmod(path.c_str(), 0), 0);
  EXPECT_EQ(MappedFile::Open(path).status().code(), absl::StatusCode::kPermissionDenied);
}

}  // namespace
}  // namespace tandem
