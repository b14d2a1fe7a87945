#include "model/packed_file.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "tests/folder_testing.h"
#include "tests/status_testing.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

absl::Span<const std::byte> Bytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

class PackedFileTest : public FolderTest {
 protected:
  void SetUp() override {
    for (const std::string name : {"a", "b"}) {
      TestFolder::Write("model/" + name, "weights of " + name);
    }
  }

  std::string Model(const std::string& name) const { return folder_ + "/model/" + name; }
  PackedSource Source(const std::string& how = "q8_0") const {
    auto source = PackedSource::Of({Model("a"), Model("b")}, how, folder_ + "/made/packed");
    EXPECT_TRUE(source.ok()) << source.status();
    return *source;
  }
  // The files of packed weights, complete or not.
  int NumPacked() const {
    const fs::path packed = folder_ + "/made/packed";
    if (!fs::exists(packed)) return 0;
    int count = 0;
    for (const fs::directory_entry& file : fs::directory_iterator(packed)) {
      if (file.path().extension() != ".lock") ++count;
    }
    return count;
  }
  absl::StatusOr<std::unique_ptr<PackedFileWriter>> Create(const PackedSource& source,
                                                           absl::string_view turn = "q8_0") const {
    auto taken = PackingTurn::Take(Source(std::string(turn)));
    if (!taken.ok()) return taken.status();
    return PackedFileWriter::Create(source, 2, size_t{40} << 20, *std::move(taken), backend_.get());
  }
  static absl::Status Finish(PackedFileWriter* writer) {
    writer->WriteInBackground();
    return writer->Await();
  }

  const std::unique_ptr<Backend> backend_ = *MakeCpuBackend({.num_threads = 1});

  const std::string first_ = absl::StrCat(std::string(1000, 'x'), "end");
  const std::string second_ = std::string(kPackedAlignment, 'y');

  void Write(const PackedSource& source) const {
    ASSERT_OK_AND_ASSIGN(auto writer, Create(source));
    EXPECT_TRUE(writer->Add("first", Bytes(first_)).ok());
    EXPECT_TRUE(writer->Add(std::string(400, 'n'), Bytes(second_)).ok());
    EXPECT_TRUE(Finish(writer.get()).ok());
  }
};

TEST_F(PackedFileTest, FindsAddedEntries) {
  EXPECT_TRUE(absl::IsNotFound(PackedFile::Open(Source()).status()));
  Write(Source());
  EXPECT_EQ(NumPacked(), 1);
  ASSERT_OK_AND_ASSIGN(const auto packed, PackedFile::Open(Source()));
  const auto first = *packed.Find("first");
  EXPECT_EQ(first.size(), 1024);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(first.data()), first.size()),
            first_ + std::string(1024 - first_.size(), '\0'));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first.data()) % kPackedAlignment, 0);
  const auto second = *packed.Find(std::string(400, 'n'));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(second.data()), second.size()), second_);
  EXPECT_EQ(packed.Find("third").status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(PackedFileTest, DoesNotExistBeforeItIsComplete) {
  {
    ASSERT_OK_AND_ASSIGN(auto writer, Create(Source()));
    EXPECT_TRUE(writer->Add("first", Bytes(first_)).ok());
    EXPECT_TRUE(absl::IsNotFound(PackedFile::Open(Source()).status()));
  }
  EXPECT_TRUE(fs::is_empty(folder_ + "/made/packed"));
}

TEST_F(PackedFileTest, IsRejectedAfterAChangeOfTheModel) {
  const PackedSource before = Source();
  Write(before);
  EXPECT_EQ(Source().identity, before.identity);
  fs::last_write_time(Model("b"), fs::last_write_time(Model("b")) + std::chrono::seconds(1));
  const PackedSource touched = Source();
  EXPECT_EQ(touched.path, before.path);
  EXPECT_THAT(std::string(PackedFile::Open(touched).status().message()),
              HasSubstr("the model's files have changed since it was packed"));
  Write(touched);  // replaces the old file
  EXPECT_EQ(NumPacked(), 1);
  EXPECT_TRUE(PackedFile::Open(touched).ok());
  EXPECT_FALSE(PackedFile::Open(before).ok());

  const auto time = fs::last_write_time(Model("a"));
  std::ofstream(Model("a")) << "Weights of a";  // the same length
  fs::last_write_time(Model("a"), time);
  EXPECT_NE(Source().identity, touched.identity);
  EXPECT_NE(Source("q4_k").path, touched.path);
  EXPECT_NE(Source("q4_k").identity, Source().identity);
}

TEST_F(PackedFileTest, IsRejectedIfTruncated) {
  const PackedSource source = Source();
  Write(source);
  const auto size = static_cast<int64_t>(fs::file_size(source.path));
  for (const int64_t left : {size - 1, size / 2, int64_t{100}, int64_t{8}, int64_t{0}}) {
    fs::resize_file(source.path, left);
    EXPECT_FALSE(PackedFile::Open(source).ok()) << left;
  }
  Write(source);
  EXPECT_TRUE(PackedFile::Open(source).ok());
}

// Changes one byte of the header, an entry, its padding or the checksums themselves.
TEST_F(PackedFileTest, IsRejectedIfAByteChanges) {
  const PackedSource source = Source();
  ASSERT_OK_AND_ASSIGN(auto writer, Create(source));
  // Several chunks and blocks, the last ones partial.
  std::string weights((size_t{21} << 20) + 1000, '\0');
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<char>(i % 251);
  ASSERT_TRUE(writer->Add("weights", Bytes(weights)).ok());
  ASSERT_TRUE(Finish(writer.get()).ok());
  ASSERT_TRUE(PackedFile::Open(source).ok());
  const auto size = static_cast<int64_t>(fs::file_size(source.path));
  const auto change = [&](int64_t at) {
    std::fstream file(source.path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(at);
    const char byte = static_cast<char>(file.get() ^ 0x10);
    file.seekp(at);
    file.put(byte);
  };
  std::vector<int64_t> places = {0, 9, size - 64};
  for (int64_t at = 4099; at < size - 64; at += 1'333'333) places.push_back(at);
  for (const int64_t at : places) {
    change(at);
    EXPECT_FALSE(PackedFile::Open(source).ok()) << at;
    change(at);
  }
  ASSERT_TRUE(PackedFile::Open(source).ok());
  change(3 << 20);
  const absl::Status damaged = PackedFile::Open(source).status();
  EXPECT_EQ(damaged.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(damaged.message()), HasSubstr("the bytes from 3145728 on are damaged"));
}

// Part files do not depend on process ids, which may be the same in two containers, nor on locks,
// which a file system may not have.
TEST_F(PackedFileTest, TwoWritersUseDifferentParts) {
  const auto first = Create(Source());
  const auto second = Create(Source(), /*turn=*/"q4_k");
  ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
  EXPECT_EQ(NumPacked(), 2);
  RemoveUnfinishedPackedFiles(folder_ + "/made/packed");
  EXPECT_EQ(NumPacked(), 2);
  for (PackedFileWriter* const writer : {first->get(), second->get()}) {
    EXPECT_TRUE(writer->Add("first", Bytes(first_)).ok());
    EXPECT_TRUE(Finish(writer).ok());
    EXPECT_TRUE(PackedFile::Open(Source()).ok());
  }
  EXPECT_EQ(NumPacked(), 1);
}

TEST_F(PackedFileTest, WaitsForItsTurnWhileThereIsProgress) {
  constexpr absl::Duration kPatience = absl::Milliseconds(100);
  std::optional<PackingTurn> first = *PackingTurn::Take(Source());
  EXPECT_TRUE(PackingTurn::Take(Source("q4_k")).ok());  // other weights
  const auto refused = PackingTurn::Take(Source(), kPatience);
  EXPECT_TRUE(absl::IsUnavailable(refused.status())) << refused.status();
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("makes no progress"));
  std::thread holder([&] {
    for (int i = 0; i < 10; ++i) {
      absl::SleepFor(kPatience / 4);
      first->ReportProgress();
    }
    first.reset();
  });
  EXPECT_TRUE(PackingTurn::Take(Source(), kPatience).ok());
  holder.join();
  EXPECT_TRUE(fs::is_empty(folder_ + "/made/packed"));
}

TEST_F(PackedFileTest, LeavesNothingIfItEndsBeforeItIsComplete) {
  ASSERT_OK_AND_ASSIGN(auto writer, Create(Source()));
  ASSERT_TRUE(writer->Add("first", Bytes(first_)).ok());
  writer->WriteInBackground();
  writer.reset();
  EXPECT_TRUE(fs::is_empty(folder_ + "/made/packed"));
}

// Whenever a process is killed, there is the whole file or none, apart from files that the next
// start removes.
TEST_F(PackedFileTest, IsWholeOrMissingAfterAKill) {
  const std::string packed = folder_ + "/made/packed";
  const std::string weights(size_t{36} << 20, 'w');
  for (const int milliseconds : {1, 5, 15, 30, 60}) {
    const pid_t child = fork();
    if (child == 0) {
      const auto writer = Create(Source());
      if (!writer.ok() || !(*writer)->Add("weights", Bytes(weights)).ok()) _exit(1);
      Finish(writer->get()).IgnoreError();
      _exit(0);
    }
    absl::SleepFor(absl::Milliseconds(milliseconds));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    RemoveUnfinishedPackedFiles(packed);
    const auto file = PackedFile::Open(Source());
    EXPECT_TRUE(file.ok() || absl::IsNotFound(file.status())) << file.status();
    EXPECT_EQ(fs::exists(packed) && !fs::is_empty(packed), file.ok());
    fs::remove_all(packed);
  }
}

TEST_F(PackedFileTest, RemovesPartsOfKilledProcesses) {
  const std::string packed = folder_ + "/made/packed";
  fs::create_directories(packed);
  const std::string name = fs::path(Source().path).filename().string();
  for (const char* left : {".00abcd.part", ".1.part", ".1234567.part", ".lock"}) {
    std::ofstream(packed + "/" + name + left) << "half of the weights";
  }
  for (const char* other :
       {"model.safetensors.part", "a-b.safetensors.1.part", "notes.part", "pages.lock"}) {
    std::ofstream(packed + "/" + other) << "of another program";
  }
  RemoveUnfinishedPackedFiles(packed);
  EXPECT_EQ(std::distance(fs::directory_iterator(packed), {}), 4);
  Write(Source());
  EXPECT_EQ(std::distance(fs::directory_iterator(packed), {}), 1 + 4);
  EXPECT_TRUE(PackedFile::Open(Source()).ok());
}

TEST_F(PackedFileTest, ErrorsNameThePath) {
  std::ofstream(folder_ + "/made") << "a file, not a folder";
  EXPECT_THAT(std::string(Create(Source()).status().message()),
              HasSubstr(folder_ + "/made/packed"));
  EXPECT_THAT(std::string(PackedSource::Of({Model("no")}, "q8_0", folder_).status().message()),
              HasSubstr(Model("no")));
  PackedSource large = Source();
  large.path = folder_ + "/packed.safetensors";
  large.bytes = int64_t{1} << 60;
  fs::remove(folder_ + "/made");
  EXPECT_EQ(Create(large).status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace tandem
