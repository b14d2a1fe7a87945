#include "base/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <utility>

namespace tandem {
namespace {

std::string Path(const std::string& name) { return ::testing::TempDir() + "/mapped_file_" + name; }

std::string Written(const std::string& name, const std::string& contents) {
  const std::string path = Path(name);
  std::ofstream(path, std::ios::binary) << contents;
  return path;
}

TEST(MappedFile, MovingKeepsTheAddressOfTheBytes) {
  const std::string contents("a\0b\xFF", 4);
  auto file = MappedFile::Open(Written("bytes", contents));
  ASSERT_TRUE(file.ok()) << file.status();
  const std::byte* const data = file->bytes().data();
  MappedFile moved = *std::move(file);
  EXPECT_EQ(moved.bytes().data(), data);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(data), moved.bytes().size()), contents);
  moved = MappedFile();
  EXPECT_TRUE(moved.bytes().empty());
}

TEST(MappedFile, EmptyFileHasNoBytes) {
  const std::string path = Written("empty", "");
  const auto file = MappedFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE(file->bytes().empty());
  EXPECT_EQ(*ReadFile(path), "");
}

// Pages that lie completely in the part are dropped; all bytes stay readable.
TEST(MappedFile, ForgottenPagesStayReadable) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::string contents(8 * page + 100, 'x');
  for (size_t i = 0; i < contents.size(); ++i) contents[i] = static_cast<char>(i % 251);
  const auto file = MappedFile::Open(Written("forgotten", contents));
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

TEST(MappedFile, BytesStayValidAfterUnlink) {
  const std::string path = Written("unlinked", "still here");
  const auto file = MappedFile::Open(path);
  ASSERT_TRUE(file.ok());
  unlink(path.c_str());
  EXPECT_EQ(file->bytes().size(), 10u);
  EXPECT_EQ(std::to_integer<char>(file->bytes()[0]), 's');
}

TEST(MappedFile, ErrorsNameThePath) {
  const std::string missing = Path("missing");
  const auto file = MappedFile::Open(missing);
  EXPECT_EQ(file.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(file.status().message().find(missing), std::string::npos) << file.status();
  EXPECT_EQ(ReadFile(missing).status(), file.status());

  const auto folder = MappedFile::Open(::testing::TempDir());
  EXPECT_EQ(folder.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(folder.status().message().find("not a regular file"), std::string::npos);

  EXPECT_FALSE(MappedFile::Open(Written("file", "x") + "/inside").ok());
  EXPECT_FALSE(MappedFile::Open("").ok());
}

TEST(MappedFile, ReadsNoFileBeyondItsBound) {
  const std::string path = Written("bounded", "seven b");
  EXPECT_EQ(*ReadFile(path, 7), "seven b");
  EXPECT_EQ(ReadFile(path, 6).status().message(), path + ": found 7 bytes, allowed: at most 6");
  truncate(path.c_str(), (int64_t{1} << 30) + 1);  // sparse: takes no room
  EXPECT_EQ(ReadFile(path).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadFile("/dev/zero").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(MappedFile, NamesPointersOfGitLfs) {
  const std::string path =
      Written("pointer", "version https://git-lfs.github.com/spec/v1\noid sha256:");
  for (const absl::Status& status : {MappedFile::Open(path).status(), ReadFile(path).status()}) {
    EXPECT_EQ(status.message(),
              path + ": is a Git LFS pointer, not the file itself; run git lfs pull");
  }
}

TEST(MappedFile, RejectsAPipeWithoutWaiting) {
  const std::string path = Path("pipe");
  unlink(path.c_str());
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(MappedFile::Open(path).status().code(), absl::StatusCode::kInvalidArgument);
  unlink(path.c_str());
}

TEST(MappedFile, ReportsMissingPermission) {
  if (geteuid() == 0) GTEST_SKIP() << "root may read everything";
  const std::string path = Written("secret", "x");
  ASSERT_EQ(chmod(path.c_str(), 0), 0);
  EXPECT_EQ(MappedFile::Open(path).status().code(), absl::StatusCode::kPermissionDenied);
  unlink(path.c_str());
}

}  // namespace
}  // namespace tandem
