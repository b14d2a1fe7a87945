// External faults of a store: killed writers, damaged files, full disks, other processes.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/philox.h"
#include "kvcache/store/sqlite_store.h"
#include "kvcache/store/store_testing.h"

namespace tandem {
namespace {

constexpr size_t kFilePage = 16384;

std::string FileIn(const TestFolder& folder) { return folder.path() + "/pages-2.sqlite"; }

absl::StatusOr<std::shared_ptr<PageStore>> Open(const TestFolder& folder,
                                                int64_t max_bytes = 2 * kMebibyte) {
  return OpenSqliteStore({.folder = folder.path(), .max_bytes = max_bytes});
}

TestText TextOf(int number, int num_pages, size_t page_bytes) {
  return TestText(TestPool("target"), 1000 * number, num_pages, page_bytes);
}

absl::Status Write(PageStore* store, const TestText& text) {
  return store->Write({.id = TestPool("target")}, text.pages());
}

// Expects that each page found is what was written. Returns the number of pages found.
int NumRight(PageStore* store, const TestText& text, size_t page_bytes) {
  return store->Read(TestPool("target"), text.refs(), page_bytes,
                     [&](int i, absl::Span<const std::byte> bytes) {
                       EXPECT_TRUE(bytes == absl::MakeConstSpan(text.bytes(i))) << "page " << i;
                       return true;
                     });
}

// Runs `body` in a child process. Returns its wait status (waitpid).
int InChild(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

// Row 186 of the bug catalogue. TANDEM_STORE_KILLS=1000 for more.
TEST(SqliteFaults, SurvivesWritersKilledAtAnyMoment) {
  constexpr size_t kBytes = 9000;
  constexpr int kTexts = 40;
  const char* const wanted = std::getenv("TANDEM_STORE_KILLS");
  const int num_kills = wanted == nullptr ? 200 : std::atoi(wanted);
  const TestFolder folder;
  int num_right = 0;
  for (int i = 0; i < num_kills; ++i) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
      const auto store = Open(folder);
      if (!store.ok()) _exit(1);
      for (int j = 0;; ++j) {
        const TestText text = TextOf((i * 7 + j) % kTexts, 1 + j % 5, kBytes);
        if (!Write(store->get(), text).ok()) _exit(2);
        if (j % 3 == 0) (*store)->Touch(text.refs());
        if (write(ends[1], "x", 1) != 1) _exit(3);
      }
    }
    close(ends[1]);
    // Kill it after several writes, in the middle of the next.
    const uint32_t draw = Philox4x32({static_cast<uint32_t>(i), 0, 0, 0}, 186)[0];
    char byte = 0;
    for (uint32_t j = 0; j <= draw % 4; ++j) ASSERT_EQ(read(ends[0], &byte, 1), 1) << "kill " << i;
    for (volatile uint32_t spin = 0; spin < draw % 100000;) spin = spin + 1;
    kill(child, SIGKILL);
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "kill " << i;

    const auto store = Open(folder);
    ASSERT_TRUE(store.ok()) << store.status();
    EXPECT_EQ((*store)->stats().pages_damaged, 0) << "kill " << i;
    for (int j = 0; j < kTexts; ++j) {
      num_right += NumRight(store->get(), TextOf(j, 5, kBytes), kBytes);
    }
    ASSERT_EQ((*store)->stats().pages_damaged, 0) << "kill " << i;
  }
  EXPECT_GT(num_right, num_kills);
}

// A store of small pages, which are next to each other in a page of the file, and of large ones,
// and its file's bytes.
class DamagedStore : public testing::Test {
 protected:
  static constexpr int kTexts = 8;
  static size_t BytesOf(int number) { return number % 2 == 0 ? 300 : 40000; }

  void SetUp() override {
    const auto store = Open(folder_);
    ASSERT_TRUE(store.ok());
    for (int i = 0; i < kTexts; ++i) {
      ASSERT_TRUE(Write(store->get(), TextOf(i, 6, BytesOf(i))).ok());
    }
    // Leave free pages in the file.
    ASSERT_TRUE((*store)->Write({.id = TestPool("other")}, TextOf(99, 9, 9000).pages()).ok());
    ASSERT_TRUE((*store)->RemovePool(TestPool("other")).ok());
    std::ifstream in(FileIn(folder_), std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(in), {});
  }

  // Opens a store whose file has these bytes, and uses every operation. Returns how many of the
  // texts' pages it had.
  int Use(const std::string& bytes, bool* is_damaged) {
    std::error_code error;
    std::filesystem::remove(FileIn(folder_) + "-journal", error);
    {
      std::ofstream out(FileIn(folder_), std::ios::binary | std::ios::trunc);
      out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    }
    const auto store = Open(folder_);
    EXPECT_TRUE(store.ok()) << store.status();
    if (!store.ok()) return 0;
    int num_right = 0;
    for (int i = 0; i < kTexts; ++i) {
      num_right += NumRight(store->get(), TextOf(i, 6, BytesOf(i)), BytesOf(i));
    }
    (*store)->Touch(TextOf(0, 6, BytesOf(0)).refs());
    Write(store->get(), TextOf(50, 6, 9000)).IgnoreError();
    NumRight(store->get(), TextOf(50, 6, 9000), 9000);
    (*store)->RemovePool(TestPool("target")).status().IgnoreError();
    (*store)->Pools().status().IgnoreError();
    *is_damaged = (*store)->stats().pages_damaged > 0;
    return num_right;
  }

  TestFolder folder_;
  std::string bytes_;
};

TEST_F(DamagedStore, ReturnsNoWrongPageAfterABitFlip) {
  bool is_damaged = false;
  ASSERT_EQ(Use(bytes_, &is_damaged), kTexts * 6);
  ASSERT_FALSE(is_damaged);
  constexpr int kFlips = 400;
  int num_seen = 0;
  for (int i = 0; i < kFlips; ++i) {
    // Flip a third of the bits in the header or at the beginning of a table, the rest anywhere.
    const auto draw = Philox4x32({static_cast<uint32_t>(i), 0, 0, 0}, 187);
    const size_t at =
        i % 3 == 0 ? draw[0] % 8 * kFilePage + draw[1] % 160 : draw[0] % bytes_.size();
    std::string flipped = bytes_;
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << draw[2] % 8));
    SCOPED_TRACE(absl::StrCat("bit ", draw[2] % 8, " of byte ", at));
    const int num_right = Use(flipped, &is_damaged);
    // A flip is harmless, or is counted as damage, or hits a key so that its page is not found.
    num_seen += is_damaged || num_right < kTexts * 6;
  }
  EXPECT_GT(num_seen, kFlips / 4);
}

TEST_F(DamagedStore, ReturnsNoPageOfATruncatedFile) {
  bool is_damaged = false;
  // SQLite takes a file of one byte as a new one.
  EXPECT_EQ(Use(bytes_.substr(0, 1), &is_damaged), 0);
  const size_t last_page = bytes_.size() - kFilePage;
  for (size_t size = 2; size <= last_page; size += 3 * 4096 - 7) {
    SCOPED_TRACE(absl::StrCat("cut to ", size));
    EXPECT_EQ(Use(bytes_.substr(0, size), &is_damaged), 0);
    EXPECT_TRUE(is_damaged);
  }
  // A cut through the last page of the file leaves the others.
  for (const size_t size : {last_page + 1, last_page + kFilePage / 2, bytes_.size() - 1}) {
    EXPECT_LE(Use(bytes_.substr(0, size), &is_damaged), kTexts * 6);
  }
}

TEST_F(DamagedStore, ReplacesAFileThatIsNotAStore) {
  bool is_damaged = false;
  EXPECT_EQ(Use("A text, and no store.", &is_damaged), 0);
  EXPECT_TRUE(is_damaged);
  EXPECT_EQ(Use(std::string(100000, '\0'), &is_damaged), 0);
  EXPECT_TRUE(is_damaged);
  EXPECT_EQ(Use("", &is_damaged), 0);  // same as a new file
  EXPECT_FALSE(is_damaged);
}

TEST(SqliteFaults, ProcessesShareAStore) {
  constexpr size_t kBytes = 9000;
  const TestFolder folder;
  std::vector<pid_t> children;
  for (int i = 0; i < 3; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      const auto store = Open(folder, 16 * kMebibyte);
      if (!store.ok()) _exit(1);
      for (int j = 0; j < 10; ++j) {
        if (!Write(store->get(), TextOf(i * 100 + j, 5, kBytes)).ok()) _exit(2);
        // All processes write this text.
        if (!Write(store->get(), TextOf(1000 + j, 5, kBytes)).ok()) _exit(3);
        if (NumRight(store->get(), TextOf(1000 + j, 5, kBytes), kBytes) != 5) _exit(4);
      }
      _exit((*store)->stats().pages_damaged == 0 ? 0 : 5);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  const auto store = Open(folder, 16 * kMebibyte);
  ASSERT_TRUE(store.ok());
  EXPECT_EQ((*(*store)->Pools())[0].pages, 3 * 50 + 50);
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 10; ++j) {
      EXPECT_EQ(NumRight(store->get(), TextOf(i * 100 + j, 5, kBytes), kBytes), 5);
    }
  }
}

// A process with a smaller limit can still read and write a file that another one has grown.
TEST(SqliteFaults, ProcessesMayUseDifferentSizeLimits) {
  constexpr size_t kBytes = 9000;
  const TestFolder folder;
  const auto store = Open(folder, kMebibyte);
  ASSERT_TRUE(store.ok());
  ASSERT_TRUE(Write(store->get(), TextOf(0, 5, kBytes)).ok());
  const int status = InChild([&] {
    const auto larger = Open(folder, 16 * kMebibyte);
    for (int i = 1; larger.ok() && i < 40; ++i) {
      if (!Write(larger->get(), TextOf(i, 8, kBytes)).ok()) return 2;
    }
    return larger.ok() ? 0 : 1;
  });
  EXPECT_EQ(status, 0);
  EXPECT_EQ(NumRight(store->get(), TextOf(39, 8, kBytes), kBytes), 8);
  EXPECT_TRUE(Write(store->get(), TextOf(77, 5, kBytes)).ok());
  EXPECT_EQ(NumRight(store->get(), TextOf(77, 5, kBytes), kBytes), 5);
}

// The kernel refuses to let the file grow, as on a full disk.
TEST(SqliteFaults, KeepsItsPagesWhenTheDiskIsFull) {
  constexpr size_t kBytes = 9000;
  const TestFolder folder;
  const int status = InChild([&] {
    const auto store = Open(folder, 16 * kMebibyte);
    if (!store.ok() || !Write(store->get(), TextOf(0, 5, kBytes)).ok()) return 1;
    signal(SIGXFSZ, SIG_IGN);
    rlimit limit = {};
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = std::filesystem::file_size(FileIn(folder)) + 4096;
    setrlimit(RLIMIT_FSIZE, &limit);
    const absl::Status full = Write(store->get(), TextOf(1, 20, kBytes));
    if (!absl::IsResourceExhausted(full)) return 2;
    if (!absl::StrContains(full.message(), std::strerror(EFBIG))) return 7;
    if (NumRight(store->get(), TextOf(0, 5, kBytes), kBytes) != 5) return 3;
    if ((*store)->Find(TextOf(1, 20, kBytes).refs()) != 0) return 4;
    limit.rlim_cur = limit.rlim_max;  // free space again
    setrlimit(RLIMIT_FSIZE, &limit);
    if (!Write(store->get(), TextOf(1, 20, kBytes)).ok()) return 5;
    return NumRight(store->get(), TextOf(1, 20, kBytes), kBytes) == 20 ? 0 : 6;
  });
  EXPECT_EQ(status, 0);
}

TEST(SqliteFaults, ReportsADiskThatWasFullBefore) {
  const TestFolder folder;
  const int status = InChild([&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {.rlim_cur = 100, .rlim_max = 100};
    setrlimit(RLIMIT_FSIZE, &limit);
    return absl::IsResourceExhausted(Open(folder).status()) ? 0 : 1;
  });
  EXPECT_EQ(status, 0);
}

TEST(SqliteFaults, ReadsAFolderWithoutWritePermission) {
  constexpr size_t kBytes = 9000;
  const TestFolder folder;
  {
    const auto store = Open(folder);
    ASSERT_TRUE(store.ok());
    ASSERT_TRUE(Write(store->get(), TextOf(0, 5, kBytes)).ok());
  }
  chmod(folder.path().c_str(), 0555);
  for (const char* name : {"/pages-2.sqlite", "/pages-2.sqlite-journal"}) {
    chmod((folder.path() + name).c_str(), 0444);
  }
  const int status = InChild([&] {
    if (getuid() == 0 && setuid(65534) != 0) return 1;  // root may write anything
    const auto store = Open(folder);
    if (!store.ok()) return 2;
    if (NumRight(store->get(), TextOf(0, 5, kBytes), kBytes) != 5) return 3;
    return absl::IsPermissionDenied(Write(store->get(), TextOf(1, 5, kBytes))) ? 0 : 4;
  });
  EXPECT_EQ(status, 0);
  chmod(folder.path().c_str(), 0755);
}

}  // namespace
}  // namespace tandem
