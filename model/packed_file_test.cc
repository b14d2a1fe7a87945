#include "model/packed_file.h"

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

absl::Span<const std::byte> Bytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

class PackedFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::remove_all(folder_);
    fs::create_directories(folder_ + "/model");
    for (const char* name : {"a", "b"}) std::ofstream(Model(name)) << "weights of " << name;
  }
  ~PackedFileTest() override { fs::remove_all(folder_); }

  std::string Model(const std::string& name) const { return folder_ + "/model/" + name; }
  PackedSource Source(const std::string& how = "q8_0") const {
    auto source = PackedSource::Of({Model("a"), Model("b")}, how, folder_ + "/made/packed");
    EXPECT_TRUE(source.ok()) << source.status();
    return *source;
  }
  int NumPacked() const {
    const fs::path packed = folder_ + "/made/packed";
    if (!fs::exists(packed)) return 0;
    return static_cast<int>(std::distance(fs::directory_iterator(packed), {}));
  }

  const std::string folder_ =
      absl::StrCat(testing::TempDir(), "/tandem_packed_file_test.", getpid());
  const std::string first_ = absl::StrCat(std::string(1000, 'x'), "end");
  const std::string second_ = std::string(kPackedAlignment, 'y');

  void Write(const PackedSource& source) const {
    auto writer = PackedFileWriter::Create(source, 2);
    ASSERT_TRUE(writer.ok()) << writer.status();
    EXPECT_TRUE(writer->Add("first", Bytes(first_)).ok());
    EXPECT_TRUE(writer->Add(std::string(400, 'n'), Bytes(second_)).ok());
    EXPECT_TRUE(writer->Finish().ok());
  }
};

TEST_F(PackedFileTest, FindsAddedEntries) {
  EXPECT_TRUE(absl::IsNotFound(PackedFile::Open(Source()).status()));
  Write(Source());
  EXPECT_EQ(NumPacked(), 1);
  const auto packed = PackedFile::Open(Source());
  ASSERT_TRUE(packed.ok()) << packed.status();
  const auto first = *packed->Find("first");
  EXPECT_EQ(first.size(), 1024);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(first.data()), first.size()),
            first_ + std::string(1024 - first_.size(), '\0'));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first.data()) % kPackedAlignment, 0);
  const auto second = *packed->Find(std::string(400, 'n'));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(second.data()), second.size()), second_);
  EXPECT_EQ(packed->Find("third").status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(PackedFileTest, DoesNotExistBeforeItIsComplete) {
  {
    auto writer = PackedFileWriter::Create(Source(), 2);
    ASSERT_TRUE(writer.ok()) << writer.status();
    EXPECT_TRUE(writer->Add("first", Bytes(first_)).ok());
    EXPECT_TRUE(absl::IsNotFound(PackedFile::Open(Source()).status()));
  }
  EXPECT_EQ(NumPacked(), 0);
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
  auto writer = PackedFileWriter::Create(source, 1);
  ASSERT_TRUE(writer.ok()) << writer.status();
  std::string weights((size_t{5} << 20) + 1000, '\0');  // several blocks, the last one partial
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<char>(i % 251);
  ASSERT_TRUE(writer->Add("weights", Bytes(weights)).ok());
  ASSERT_TRUE(writer->Finish().ok());
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
  for (int64_t at = 4099; at < size - 64; at += 333'333) places.push_back(at);
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

// Part files do not depend on process ids, which may be the same in two containers.
TEST_F(PackedFileTest, TwoWritersUseDifferentParts) {
  auto first = PackedFileWriter::Create(Source(), 2);
  auto second = PackedFileWriter::Create(Source(), 2);
  ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
  EXPECT_EQ(NumPacked(), 2);
  RemoveUnfinishedPackedFiles(folder_ + "/made/packed");
  EXPECT_EQ(NumPacked(), 2);
  for (auto* writer : {&*first, &*second}) {
    EXPECT_TRUE(writer->Add("first", Bytes(first_)).ok());
    EXPECT_TRUE(writer->Finish().ok());
    EXPECT_TRUE(PackedFile::Open(Source()).ok());
  }
  EXPECT_EQ(NumPacked(), 1);
}

TEST_F(PackedFileTest, RemovesPartsOfKilledProcesses) {
  const std::string packed = folder_ + "/made/packed";
  fs::create_directories(packed);
  const std::string name = fs::path(Source().path).filename().string();
  for (const char* left : {".00abcd.part", ".1.part", ".1234567.part"}) {
    std::ofstream(packed + "/" + name + left) << "half of the weights";
  }
  for (const char* other : {"model.safetensors.part", "a-b.safetensors.1.part", "notes.part"}) {
    std::ofstream(packed + "/" + other) << "of another program";
  }
  Write(Source());
  RemoveUnfinishedPackedFiles(packed);
  EXPECT_EQ(NumPacked(), 1 + 3);
  EXPECT_TRUE(PackedFile::Open(Source()).ok());
}

TEST_F(PackedFileTest, ErrorsNameThePath) {
  std::ofstream(folder_ + "/made") << "a file, not a folder";
  EXPECT_THAT(std::string(PackedFileWriter::Create(Source(), 2).status().message()),
              HasSubstr(folder_ + "/made/packed"));
  EXPECT_THAT(std::string(PackedSource::Of({Model("no")}, "q8_0", folder_).status().message()),
              HasSubstr(Model("no")));
  PackedSource large = Source();
  large.path = folder_ + "/packed.safetensors";
  large.bytes = int64_t{1} << 60;
  EXPECT_EQ(PackedFileWriter::Create(large, 2).status().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace tandem
