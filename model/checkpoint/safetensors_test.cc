#include "model/checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/mapped_file.h"
#include "tests/golden_file.h"
#include "tests/status_testing.h"

namespace tandem {
namespace {

// Returns a file with this header, followed by `data_bytes` bytes 0, 1, 2, ...
std::string FileOf(const std::string& header, size_t data_bytes) {
  std::string file;
  for (int i = 0; i < 8; ++i) file.push_back(static_cast<char>(header.size() >> (8 * i) & 0xFF));
  file += header;
  for (size_t i = 0; i < data_bytes; ++i) file.push_back(static_cast<char>(i));
  return file;
}

absl::StatusOr<std::vector<SafetensorsEntry>> ParseHeader(const std::string& file) {
  return ParseSafetensors(
      absl::MakeSpan(reinterpret_cast<const std::byte*>(file.data()), file.size()),
      "w.safetensors");
}

// Expects an error of one line that names the file and contains `says`.
void ExpectRefused(const std::string& file, const std::string& says) {
  const absl::Status status = ParseHeader(file).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << says;
  const absl::string_view message = status.message();
  EXPECT_TRUE(absl::StartsWith(message, "w.safetensors: ")) << message;
  EXPECT_TRUE(absl::StrContains(message, says)) << message;
  EXPECT_FALSE(absl::StrContains(message, "\n")) << message;
  EXPECT_LT(message.size(), 500u) << message;
}

std::string Tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return absl::StrCat(R"({"dtype":)", dtype, R"(,"shape":)", shape, R"(,"data_offsets":)", offsets,
                      "}");
}
// Returns the header of one tensor named "a".
std::string One(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return absl::StrCat(R"({"a":)", Tensor(dtype, shape, offsets), "}");
}

TEST(Safetensors, ReadsTensorsInTheOrderOfTheirBytes) {
  const std::string file =
      FileOf(absl::StrCat(R"({"__metadata__":{"format":"pt"},"b":)",
                          Tensor(R"("BF16")", "[2,3]", "[8,20]"), R"(,"a":)",
                          Tensor(R"("F32")", "[2]", "[0,8]"), R"(,"none":)",
                          Tensor(R"("F32")", "[0,7]", "[20,20]"), R"(,"scalar":)",
                          Tensor(R"("I64")", "[]", "[20,28]"), "}   "),
             28);
  ASSERT_OK_AND_ASSIGN(const auto entries, ParseHeader(file));
  ASSERT_EQ(entries.size(), 4u);
  EXPECT_EQ(entries[0].name, "a");
  EXPECT_EQ(entries[0].dtype, DType::kF32);
  EXPECT_EQ(entries[0].bytes.size(), 8u);
  EXPECT_EQ(std::to_integer<int>(entries[0].bytes[7]), 7);
  EXPECT_EQ(entries[1].name, "b");
  EXPECT_EQ(entries[1].dtype, DType::kBF16);
  EXPECT_EQ(entries[1].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(entries[1].num_elements, 6);
  EXPECT_EQ(std::to_integer<int>(entries[1].bytes[0]), 8);
  EXPECT_EQ(entries[2].num_elements, 0);
  EXPECT_EQ(entries[3].name, "scalar");
  EXPECT_EQ(entries[3].dtype, std::nullopt);
  EXPECT_EQ(entries[3].dtype_name, "I64");
  EXPECT_EQ(entries[3].num_elements, 1);
}

TEST(Safetensors, KnowsEveryTypeAndItsSize) {
  const std::pair<const char*, int> sizes[] = {
      {"F64", 8}, {"F32", 4}, {"F16", 2},  {"BF16", 2},    {"I64", 8},
      {"I32", 4}, {"I16", 2}, {"I8", 1},   {"U8", 1},      {"U16", 2},
      {"U32", 4}, {"U64", 8}, {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
  for (const auto& [name, size] : sizes) {
    const std::string dtype = absl::StrCat("\"", name, "\"");
    EXPECT_TRUE(
        ParseHeader(FileOf(One(dtype, "[3]", absl::StrCat("[0,", 3 * size, "]")), 3 * size)).ok());
    ExpectRefused(FileOf(One(dtype, "[3]", absl::StrCat("[0,", 3 * size + 1, "]")), 3 * size + 1),
                  absl::StrCat("allowed: ", 3 * size, " bytes"));
  }
}

TEST(Safetensors, AnEmptyHeaderHasNoTensors) {
  EXPECT_TRUE(ParseHeader(FileOf("{}", 0)).ok());
  ExpectRefused(FileOf("{}", 1), "found 1 bytes after the header, allowed: 0");
}

TEST(Safetensors, RefusesFilesTooShortForTheirHeader) {
  for (int size = 0; size < 8; ++size) {
    ExpectRefused(std::string(size, '\0'), absl::StrCat("found ", size, " bytes"));
    ExpectRefused(std::string(size, '\0'), "; the file seems to be cut off");
  }
  ExpectRefused(std::string(8, '\0'), "not JSON");
  const std::string whole = FileOf(One(R"("F32")", "[2]", "[0,8]"), 8);
  for (size_t size = 8; size < whole.size() - 8; ++size) {
    ExpectRefused(whole.substr(0, size), "header length: found");
  }
  for (size_t size = whole.size() - 8; size < whole.size(); ++size) {
    ExpectRefused(whole.substr(0, size), "data_offsets");
    ExpectRefused(whole.substr(0, size), "; the file seems to be cut off");
  }
  EXPECT_TRUE(ParseHeader(whole).ok());
  ExpectRefused(whole + "x", "found 9 bytes after the header, allowed: 8");
}

TEST(Safetensors, RefusesAbsurdHeaderLengths) {
  for (const char* const last_byte : {"\x80", "\x7F", "\xFF"}) {
    std::string file = FileOf("{}", 100);
    file[7] = last_byte[0];
    ExpectRefused(file, "header length: found ");
  }
}

TEST(Safetensors, RefusesHeadersThatAreNotAnObjectOfTensors) {
  ExpectRefused(FileOf("", 0), "not JSON");
  ExpectRefused(FileOf("{", 0), "not JSON");
  ExpectRefused(FileOf("{} x", 0), "not JSON");
  ExpectRefused(FileOf("[]", 0), "found [], allowed: an object");
  ExpectRefused(FileOf("3", 0), "found 3");
  ExpectRefused(FileOf("{\"\xFF\":1}", 0), "not JSON in UTF-8 (at byte 3)");
  ExpectRefused(FileOf(R"({"a":[]})", 0), R"(tensor "a": description: found [])");
  ExpectRefused(FileOf(R"({"a":null})", 0), "found null");
  ExpectRefused(FileOf(R"({"__metadata__":[]})", 0), "__metadata__: found []");
  ExpectRefused(FileOf(R"({"__metadata__":{"a":1}})", 0), "an object of strings");
  ExpectRefused(FileOf(R"({"a":{}})", 0), "dtype: found null");
  ExpectRefused(FileOf(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}})", 4),
                "x: found 1");
}

TEST(Safetensors, RefusesDuplicateNames) {
  const std::string tensor = Tensor(R"("U8")", "[1]", "[0,1]");
  ExpectRefused(FileOf(absl::StrCat(R"({"a":)", tensor, R"(,"\u0061":)", tensor, "}"), 1),
                R"(key "a" twice)");
  ExpectRefused(FileOf(R"({"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}})", 1),
                R"(key "dtype" twice)");
}

TEST(Safetensors, RefusesDeepNestingWithoutRecursion) {
  ExpectRefused(FileOf(std::string(100'000, '['), 0), "nested more than 64 deep");
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += R"({"a":)";
  ExpectRefused(FileOf(objects, 0), "nested more than 64 deep");
}

TEST(Safetensors, RefusesWrongTypes) {
  for (const char* const dtype : {R"("F3")", R"("f32")", R"("")", "32", "null", R"(["F32"])"}) {
    ExpectRefused(FileOf(One(dtype, "[1]", "[0,4]"), 4), "allowed: F32, F16, BF16, F64");
  }
}

TEST(Safetensors, RefusesWrongShapes) {
  for (const char* const shape : {"[-1,8]", "[1.0]", "[1e3]", R"(["1"])", "[null]", "[[1]]",
                                  "[18446744073709551616]", "[true]"}) {
    ExpectRefused(FileOf(One(R"("F32")", shape, "[0,4]"), 4), "shape: found");
  }
  ExpectRefused(FileOf(One(R"("F32")", "3", "[0,4]"), 4), "shape: found 3, allowed: a list");
  // Products that would wrap around to the right number of bytes.
  for (const char* const shape :
       {"[4611686018427387904,4611686018427387904]", "[4294967296,4294967296,4]",
        "[9223372036854775808]", "[18446744073709551615]", "[4611686018427387905]"}) {
    ExpectRefused(FileOf(One(R"("F32")", shape, "[0,4]"), 4), "product is less than 2^63");
  }
  ExpectRefused(FileOf(One(R"("F32")", "[2]", "[0,4]"), 4), "allowed: 8 bytes");
}

TEST(Safetensors, RefusesWrongOffsets) {
  for (const char* const offsets : {R"("0,4")", "[0]", "[0,4,8]", "[-4,4]", "[0.0,4.0]", "null",
                                    "{}", "[0,18446744073709551616]"}) {
    ExpectRefused(FileOf(One(R"("F32")", "[1]", offsets), 4), "allowed: two integers");
  }
  for (const char* const offsets :
       {"[4,0]", "[0,5]", "[0,1099511627776]", "[18446744073709551612,18446744073709551615]"}) {
    ExpectRefused(FileOf(One(R"("F32")", "[1]", offsets), 4), "begin <= end <= 4");
  }
}

TEST(Safetensors, RefusesOverlapsAndHoles) {
  const auto two = [](const char* first, const char* second, size_t data_bytes) {
    return FileOf(absl::StrCat(R"({"a":)", Tensor(R"("U8")", "[4]", first), R"(,"b":)",
                               Tensor(R"("U8")", "[4]", second), "}"),
                  data_bytes);
  };
  EXPECT_TRUE(ParseHeader(two("[0,4]", "[4,8]", 8)).ok());
  EXPECT_TRUE(ParseHeader(two("[4,8]", "[0,4]", 8)).ok());
  ExpectRefused(two("[0,4]", "[0,4]", 4), "the tensor it overlaps");
  ExpectRefused(two("[0,4]", "[3,7]", 7), R"(tensor "b": data_offsets: begins at 3, allowed: 4)");
  ExpectRefused(two("[0,4]", "[5,9]", 9), "begins at 5, allowed: 4, the end of the tensor before");
  ExpectRefused(two("[1,5]", "[5,9]", 9), "begins at 1, allowed: 0");
  ExpectRefused(two("[0,4]", "[4,8]", 9), "found 9 bytes after the header, allowed: 8");
}

TEST(Safetensors, ShowsHostileNamesInOnePrintableLine) {
  const std::string name = "\\n\\u0000\\u001b[31m" + std::string(5000, 'x');
  ExpectRefused(
      FileOf(absl::StrCat(R"({")", name, R"(":)", Tensor(R"("F3")", "[1]", "[0,1]"), "}"), 1),
      R"(tensor "\n\x00\x1b[31mxxx)");
}

// Changes every byte of a golden file's header in several ways: nothing crashes, and the tensors of
// accepted files lie in the file.
TEST(Safetensors, ChangedBytesAreRefusedOrHarmless) {
  const std::string path = GoldenModelPath("llama-mqa/model.safetensors");
  ASSERT_OK_AND_ASSIGN(const auto whole, ReadFile(path));
  ASSERT_TRUE(ParseHeader(whole).ok());
  size_t header_end = 8;
  for (int i = 0; i < 8; ++i) header_end += size_t(uint8_t(whole[i])) << (8 * i);
  std::string file = whole;
  int num_refused = 0;
  for (size_t i = 0; i < header_end; ++i) {
    for (const int change : {1, 0x80, 0x20}) {
      file[i] = static_cast<char>(whole[i] ^ change);
      const auto entries = ParseHeader(file);
      num_refused += !entries.ok();
      if (!entries.ok()) continue;
      for (const SafetensorsEntry& entry : *entries) {
        const char* const begin = reinterpret_cast<const char*>(entry.bytes.data());
        ASSERT_LE(file.data() + header_end, begin);
        ASSERT_LE(begin + entry.bytes.size(), file.data() + file.size());
      }
    }
    file[i] = whole[i];
  }
  EXPECT_GT(num_refused, static_cast<int>(header_end));
}

}  // namespace
}  // namespace tandem
