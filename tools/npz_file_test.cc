#include "tools/npz_file.h"

#include <zip.h>

#include <cstring>
#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/folder_testing.h"

namespace tandem {
namespace {

class NpzFile : public testing::Test {
 protected:
  // Makes an array of `values` that returns them in pieces of three.
  static NpyArray Array(const std::vector<int32_t>* values, std::vector<int64_t> shape) {
    return {
        .name = "x",
        .type = "<i4",
        .item_bytes = 4,
        .shape = std::move(shape),
        .next = [values, at = size_t{0}]() mutable -> absl::StatusOr<absl::Span<const std::byte>> {
          const auto piece = absl::MakeConstSpan(*values).subspan(at, 3);
          at += piece.size();
          return absl::MakeConstSpan(reinterpret_cast<const std::byte*>(piece.data()),
                                     piece.size() * 4);
        }};
  }
  // Reads an entry of the archive, and checks its size.
  std::string Entry(const char* name) const {
    zip_t* const archive = zip_open(path_.c_str(), ZIP_RDONLY, nullptr);
    zip_stat_t stat;
    EXPECT_EQ(zip_stat(archive, name, 0, &stat), 0);
    EXPECT_EQ(stat.comp_method, ZIP_CM_STORE);
    std::string bytes(stat.size, '\0');
    zip_file_t* const file = zip_fopen(archive, name, 0);
    EXPECT_EQ(zip_fread(file, bytes.data(), bytes.size()), static_cast<zip_int64_t>(stat.size));
    zip_fclose(file);
    zip_discard(archive);
    return bytes;
  }

  const TestFolder folder_;
  const std::string path_ = folder_.Path("x.npz");
  const std::vector<int32_t> values_ = {1, -2, 3, 4, 5, 6, 7, 8};
};

TEST_F(NpzFile, WritesArraysInNumpysFormat) {
  ASSERT_TRUE(WriteNpz(path_, {Array(&values_, {2, 4})}).ok());
  const std::string entry = Entry("x.npy");
  const size_t header = entry.size() - values_.size() * 4;
  EXPECT_EQ(header % 64, 0);
  EXPECT_EQ(entry.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  EXPECT_EQ(static_cast<unsigned char>(entry[8]) + 256 * entry[9], header - 10);
  EXPECT_THAT(entry.substr(10, header - 10),
              testing::StartsWith("{'descr': '<i4', 'fortran_order': False, 'shape': (2,4,), }"));
  EXPECT_EQ(entry[header - 1], '\n');
  EXPECT_EQ(std::memcmp(entry.data() + header, values_.data(), values_.size() * 4), 0);
}

TEST_F(NpzFile, AFailingArrayLeavesNoFile) {
  NpyArray failing = Array(&values_, {8});
  failing.name = "y";
  failing.next = [] { return absl::InternalError("no more"); };
  EXPECT_EQ(WriteNpz(path_, {Array(&values_, {8}), failing}), absl::InternalError("no more"));
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(NpzFile, RejectsAnArrayWhoseSizeDiffersFromItsShape) {
  for (const int64_t size : {7, 9}) {
    EXPECT_THAT(std::string(WriteNpz(path_, {Array(&values_, {size})}).message()),
                testing::HasSubstr("the number of bytes differs from the shape's"));
  }
}

TEST_F(NpzFile, ErrorNamesAFileThatCannotBeWritten) {
  EXPECT_THAT(std::string(WriteNpz("/nowhere/x.npz", {Array(&values_, {8})}).message()),
              testing::StartsWith("/nowhere/x.npz: cannot be written: "));
}

}  // namespace
}  // namespace tandem
