#include "base/output_folder.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "base/mapped_file.h"
#include "base/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/folder_testing.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

class OutputFolderTest : public FolderTest {
 protected:
  // Creates `folder` with a file in it, and keeps it if `keep`.
  void Make(const std::string& folder, bool keep) {
    absl::StatusOr<OutputFolder> output = OutputFolder::Create(Path(folder));
    ASSERT_TRUE(output.ok()) << output.status();
    absl::StatusOr<OutputFile> file = output->NewFile("a");
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE(file->Write("some ").ok() && file->Write("text").ok() && file->Close().ok());
    if (keep) output->Keep();
  }
};

TEST_F(OutputFolderTest, KeepKeepsTheFiles) {
  Make("parent/new", true);
  EXPECT_EQ(*ReadFile(Path("parent/new/a")), "some text");
}

// Another descriptor of this process has the same effect as another process.
TEST_F(OutputFolderTest, FilesInUseAreNotRemovedAsLeftOver) {
  std::string part;
  {
    absl::StatusOr<OutputFolder> output = OutputFolder::Create(Path("packed"));
    ASSERT_TRUE(output.ok()) << output.status();
    const absl::StatusOr<OutputFile> first = output->NewPart("a");
    absl::StatusOr<OutputFile> second = output->NewPart("a");
    ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
    EXPECT_NE(first->path(), second->path());
    for (const std::string& path : {first->path(), second->path()}) {
      RemoveIfUnused(path);
      EXPECT_TRUE(fs::exists(path));
    }
    ASSERT_TRUE(second->Close().ok());
    part = second->path();
    output->Keep();
  }
  RemoveIfUnused(part);
  EXPECT_FALSE(fs::exists(part));
  RemoveIfUnused(part);  // does nothing without a file
}

TEST_F(OutputFolderTest, RemovedFilesAreNotMarkedAsInUse) {
  const std::string path = Path("a.part");
  std::ofstream(path) << "of a killed process";
  const int descriptor = open(path.c_str(), O_WRONLY);
  RemoveIfUnused(path);
  EXPECT_FALSE(MarkInUse(descriptor, path));
  std::ofstream(path) << "of another process";
  EXPECT_FALSE(MarkInUse(descriptor, path));
  close(descriptor);
}

TEST_F(OutputFolderTest, AFileIsReplacedAsAWhole) {
  const std::string path = Path("a.txt");
  for (const char* text : {"long text", "text", ""}) {
    ASSERT_TRUE(ReplaceFile(path, text).ok());
    EXPECT_EQ(*ReadFile(path), text);
  }
  ASSERT_TRUE(fs::create_directory(Path("b")));
  EXPECT_FALSE(ReplaceFile(Path("b"), "text").ok());
  EXPECT_FALSE(ReplaceFile(Path("missing/a.txt"), "text").ok());
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 2);  // no parts are left
}

TEST_F(OutputFolderTest, PartsHaveThePermissionsOfOtherFiles) {
  absl::StatusOr<OutputFolder> around = OutputFolder::Around(Path("a"));
  ASSERT_TRUE(around.ok());
  const absl::StatusOr<OutputFile> part = around->NewPart("a");
  ASSERT_TRUE(part.ok()) << part.status();
  std::ofstream(Path("plain")) << "text";
  EXPECT_EQ(fs::status(part->path()).permissions(), fs::status(Path("plain")).permissions());
}

TEST_F(OutputFolderTest, RemovesOnlyItsOwnFiles) {
  Make("new", false);
  EXPECT_FALSE(fs::exists(Path("new")));

  fs::create_directory(Path("old"));
  Make("old", false);
  EXPECT_TRUE(fs::is_empty(Path("old")));

  {
    absl::StatusOr<OutputFolder> output = OutputFolder::Create(Path("shared"));
    ASSERT_TRUE(output.ok());
    ASSERT_TRUE(output->NewFile("a").ok());
    std::ofstream(Path("shared/b")) << "of another program";
  }
  EXPECT_FALSE(fs::exists(Path("shared/a")));
  EXPECT_EQ(*ReadFile(Path("shared/b")), "of another program");
}

TEST_F(OutputFolderTest, DoesNotOverwriteAFileThatAppearedInTheMeantime) {
  {
    absl::StatusOr<OutputFolder> output = OutputFolder::Create(Path("new"));
    ASSERT_TRUE(output.ok());
    std::ofstream(Path("new/a")) << "of another program";
    EXPECT_EQ(output->NewFile("a").status().code(), absl::StatusCode::kAlreadyExists);
  }
  EXPECT_EQ(*ReadFile(Path("new/a")), "of another program");
}

// A pipe holds 64 KiB, a non-blocking write takes as many bytes as fit, and signals interrupt
// blocking writes. The reader sends the writer a signal before every read.
TEST(WriteAll, WritesAllBytesDespiteSignalsAndSlowReaders) {
  struct sigaction interrupts = {};
  interrupts.sa_handler = [](int) {};
  struct sigaction before;
  ASSERT_EQ(sigaction(SIGUSR1, &interrupts, &before), 0);  // without SA_RESTART
  std::string sent;
  for (int i = 0; i < 300000; ++i) sent += static_cast<char>(i * 7 + i / 256);
  for (const int flags : {0, O_NONBLOCK}) {
    int ends[2];
    ASSERT_EQ(pipe2(ends, flags), 0);
    ASSERT_EQ(fcntl(ends[0], F_SETFL, 0), 0);
    absl::Status status = absl::UnknownError("not written");
    std::thread writer([&] {
      status = WriteAll(ends[1], sent, "pipe");
      close(ends[1]);
    });
    std::string received;
    char bytes[1000];
    while (received.size() < sent.size()) {
      pthread_kill(writer.native_handle(), SIGUSR1);
      const ssize_t size = read(ends[0], bytes, sizeof(bytes));
      if (size <= 0) break;
      received.append(bytes, size);
    }
    writer.join();
    close(ends[0]);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(received == sent);
  }
  sigaction(SIGUSR1, &before, nullptr);
}

TEST(WriteAll, ReportsAClosedReader) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  const auto before = std::signal(SIGPIPE, SIG_IGN);
  const absl::Status status = WriteAll(ends[1], "text", "pipe");
  std::signal(SIGPIPE, before);
  close(ends[1]);
  EXPECT_TRUE(IsReaderGone(status)) << status;
  EXPECT_FALSE(IsReaderGone(absl::UnavailableError(status.message())));
}

TEST_F(OutputFolderTest, SeekMovesTheNextWrite) {
  absl::StatusOr<OutputFolder> output = OutputFolder::Create(Path("new"));
  ASSERT_TRUE(output.ok());
  absl::StatusOr<OutputFile> file = output->NewFile("a");
  ASSERT_TRUE(file.ok());
  EXPECT_TRUE(file->Seek(3).ok());
  EXPECT_TRUE(file->Write("end").ok());
  EXPECT_TRUE(file->Seek(0).ok());
  EXPECT_TRUE(file->Write("b").ok());
  EXPECT_TRUE(file->Sync().ok());
  EXPECT_TRUE(file->Close().ok());
  EXPECT_EQ(*ReadFile(Path("new/a")), std::string("b\0\0end", 6));
  EXPECT_THAT(std::string(OutputFile("none", -1).Seek(0).message()),
              ::testing::HasSubstr("none: cannot seek"));
}

TEST_F(OutputFolderTest, FilesTakeThePlaceOfMemory) {
  absl::StatusOr<OutputFolder> output = OutputFolder::Create(Path("new"));
  ASSERT_TRUE(output.ok());
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  auto* const memory = static_cast<std::byte*>(
      mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  std::memset(memory, 'm', 2 * page);
  {
    absl::StatusOr<OutputFile> file = output->NewFile("a");
    ASSERT_TRUE(file.ok());
    EXPECT_TRUE(file->Write(std::string(page, 'x') + std::string(page, 'f')).ok());
    EXPECT_TRUE(file->Sync(page, page).ok());
    file->MapOver(page, {memory, page});
    EXPECT_TRUE(file->Seek(page).ok());
    EXPECT_TRUE(file->Write("later").ok());
  }
  std::filesystem::remove(Path("new/a"));
  EXPECT_EQ(View(absl::MakeConstSpan(memory, 6)), "laterf");
  EXPECT_EQ(View(absl::MakeConstSpan(memory + page, 1)), "m");
  munmap(memory, 2 * page);
}

TEST_F(OutputFolderTest, FullDeviceIsResourceExhausted) {
  const int descriptor = open("/dev/full", O_WRONLY);
  if (descriptor < 0) GTEST_SKIP() << "no /dev/full here";
  OutputFile file("full", descriptor);
  EXPECT_EQ(file.Write("text").code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace tandem
