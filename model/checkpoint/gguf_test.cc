#include "model/checkpoint/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/folder_testing.h"
#include "tests/gguf_builder.h"
#include "tests/status_testing.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

absl::Span<const std::byte> GgufBytes(const std::string& file) {
  return {reinterpret_cast<const std::byte*>(file.data()), file.size()};
}

absl::Status GgufStatus(const std::string& file) {
  return GgufFile::Parse(GgufBytes(file), "x.gguf").status();
}

void ExpectGgufRefused(const std::string& file, const std::string& says) {
  const absl::Status status = GgufStatus(file);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status << ", not: " << says;
  EXPECT_THAT(std::string(status.message()), StartsWith("x.gguf: "));
  EXPECT_THAT(std::string(status.message()), HasSubstr(says));
  EXPECT_LT(status.message().size(), 600u);
  EXPECT_FALSE(absl::StrContains(status.message(), '\n')) << status;
}

// A file with a value of every kind and three tensors.
GgufBuilder GoodGguf() {
  GgufBuilder file;
  file.Set("general.architecture", GgufString("llama"));
  file.Set("u8", GgufValue(0, GgufNumber(uint8_t{200})));
  file.Set("i8", GgufValue(1, GgufNumber(int8_t{-100})));
  file.Set("u16", GgufValue(2, GgufNumber(uint16_t{60'000})));
  file.Set("i16", GgufValue(3, GgufNumber(int16_t{-30'000})));
  file.Set("u32", GgufUint32(4'000'000'000));
  file.Set("i32", GgufValue(5, GgufNumber(int32_t{-2'000'000'000})));
  file.Set("f32", GgufFloat32(0.5f));
  file.Set("yes", GgufBool(true));
  file.Set("u64", GgufValue(10, GgufNumber(uint64_t{1} << 62)));
  file.Set("u64 most", GgufValue(10, GgufNumber(~uint64_t{0})));
  file.Set("i64", GgufValue(11, GgufNumber(-(int64_t{1} << 62))));
  file.Set("f64", GgufValue(12, GgufNumber(0.1)));
  file.Set("texts", GgufStrings({"a", "", "ccc"}));
  file.Set("floats", GgufArray(6, 2, GgufNumber(1.5f) + GgufNumber(-2.0f)));
  file.Set("doubles", GgufArray(12, 1, GgufNumber(0.25)));
  file.Set("integers", GgufArray(5, 3, GgufNumber(1) + GgufNumber(-2) + GgufNumber(3)));
  file.Set("none", GgufArray(8, 0, ""));
  file.AddFloats("a.weight", {3, 2}, {1, 2, 3, 4, 5, 6});
  file.AddFloats("a.bias", {2}, {7, 8});
  file.tensors.push_back({"b.weight", {64, 1, 1, 3}, 8, std::string(3 * 2 * 34, 'q')});
  return file;
}

TEST(Gguf, ReadsValuesOfEveryKind) {
  const std::string bytes = GoodGguf().Bytes();
  ASSERT_OK_AND_ASSIGN(const auto file, GgufFile::Parse(GgufBytes(bytes), "x.gguf"));
  const GgufFile& gguf = *file;
  EXPECT_EQ(gguf.path(), "x.gguf");
  EXPECT_TRUE(gguf.Has("u8"));
  EXPECT_FALSE(gguf.Has("u9"));
  EXPECT_EQ(gguf.keys().size(), 18u);
  EXPECT_EQ(gguf.keys().front(), "doubles");
  EXPECT_EQ(*gguf.GetString("general.architecture"), "llama");
  const auto integer = [&](const char* key) {
    return gguf.GetInteger(key, std::numeric_limits<int64_t>::min(),
                           std::numeric_limits<int64_t>::max());
  };
  EXPECT_EQ(*integer("u8"), 200);
  EXPECT_EQ(*integer("i8"), -100);
  EXPECT_EQ(*integer("u16"), 60'000);
  EXPECT_EQ(*integer("i16"), -30'000);
  EXPECT_EQ(*integer("u32"), 4'000'000'000);
  EXPECT_EQ(*integer("i32"), -2'000'000'000);
  EXPECT_EQ(*integer("u64"), int64_t{1} << 62);
  EXPECT_EQ(*integer("i64"), -(int64_t{1} << 62));
  EXPECT_EQ(*gguf.GetNumber("f32"), 0.5);
  EXPECT_EQ(*gguf.GetNumber("f64"), 0.1);
  EXPECT_EQ(*gguf.GetNumber("i8"), -100);
  EXPECT_EQ(*gguf.GetNumber("u64 most"), std::pow(2.0, 64));
  EXPECT_TRUE(*gguf.GetBool("yes"));
  EXPECT_THAT(*gguf.GetStrings("texts"), ElementsAre("a", "", "ccc"));
  EXPECT_THAT(*gguf.GetStrings("none"), ElementsAre());
  EXPECT_THAT(*gguf.GetFloats("floats"), ElementsAre(1.5f, -2.0f));
  EXPECT_THAT(*gguf.GetFloats("doubles"), ElementsAre(0.25f));
  EXPECT_THAT(*gguf.GetIntegers("integers"), ElementsAre(1, -2, 3));
}

TEST(Gguf, NamesTheMissingOrWrongValue) {
  GgufBuilder builder = GoodGguf();
  builder.Set("infinite", GgufFloat32(INFINITY));
  builder.Set("infinities", GgufArray(6, 1, GgufNumber(-INFINITY)));
  builder.Set("large", GgufArray(12, 1, GgufNumber(1e300)));
  builder.Set("maybe", GgufValue(7, GgufNumber(uint8_t{2})));
  builder.Set("far", GgufArray(4, 2, GgufNumber(1u) + GgufNumber(3'000'000'000u)));
  builder.Set("farther", GgufArray(10, 1, GgufNumber(~uint64_t{0})));
  builder.Set("bools", GgufArray(7, 1, "\1"));
  const std::string bytes = builder.Bytes();
  ASSERT_OK_AND_ASSIGN(const auto file, GgufFile::Parse(GgufBytes(bytes), "x.gguf"));
  const GgufFile& gguf = *file;
  const auto expect_missing = [](const absl::Status& status) {
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
    EXPECT_THAT(std::string(status.message()),
                StartsWith("x.gguf: key \"no\": found nothing, allowed: "));
  };
  expect_missing(gguf.GetString("no").status());
  expect_missing(gguf.GetInteger("no", 0, 1).status());
  expect_missing(gguf.GetNumber("no").status());
  expect_missing(gguf.GetBool("no").status());
  expect_missing(gguf.GetStrings("no").status());
  expect_missing(gguf.GetFloats("no").status());
  expect_missing(gguf.GetIntegers("no").status());

  const auto expect_wrong = [](const absl::Status& status, const std::string& message) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_EQ(std::string(status.message()), absl::StrCat("x.gguf: key ", message));
  };
  expect_wrong(gguf.GetString("u8").status(), R"("u8": found 200, allowed: a string)");
  expect_wrong(gguf.GetString("texts").status(),
               R"("texts": found an array of 3 string, allowed: a string)");
  expect_wrong(gguf.GetInteger("u8", 0, 199).status(),
               R"("u8": found 200, allowed: an integer from 0 to 199)");
  expect_wrong(gguf.GetInteger("i8", 0, 9).status(),
               R"("i8": found -100, allowed: an integer from 0 to 9)");
  expect_wrong(gguf.GetInteger("u64 most", 0, 9).status(),
               R"("u64 most": found 18446744073709551615, allowed: an integer from 0 to 9)");
  expect_wrong(gguf.GetInteger("f32", 0, 9).status(),
               R"("f32": found 0.5, allowed: an integer from 0 to 9)");
  expect_wrong(gguf.GetInteger("yes", 3, 3).status(), R"("yes": found true, allowed: 3)");
  expect_wrong(gguf.GetInteger("integers", 0, 9).status(),
               R"("integers": found an array of 3 int32, allowed: an integer from 0 to 9)");
  expect_wrong(gguf.GetNumber("infinite").status(),
               R"("infinite": found inf, allowed: a finite number)");
  expect_wrong(gguf.GetNumber("general.architecture").status(),
               R"("general.architecture": found the string "llama", allowed: a finite number)");
  expect_wrong(gguf.GetBool("maybe").status(),
               R"("maybe": found a bool of 2, allowed: a bool of 0 or 1)");
  expect_wrong(gguf.GetBool("u8").status(), R"("u8": found 200, allowed: a bool of 0 or 1)");
  expect_wrong(gguf.GetStrings("floats").status(),
               R"("floats": found an array of 2 float32, allowed: an array of strings)");
  expect_wrong(gguf.GetStrings("general.architecture").status(),
               R"("general.architecture": found the string "llama", allowed: an array of strings)");
  for (const char* const key : {"infinities", "large", "integers", "f32", "texts"}) {
    EXPECT_THAT(std::string(gguf.GetFloats(key).status().message()),
                HasSubstr("allowed: an array of finite float32 or float64"));
  }
  for (const char* const key : {"far", "farther", "bools", "floats", "texts", "i32"}) {
    EXPECT_THAT(std::string(gguf.GetIntegers(key).status().message()),
                HasSubstr("allowed: an array of integers of 32 bits"));
  }
  EXPECT_THAT(std::string(gguf.GetIntegers("far").status().message()),
              HasSubstr("found 3000000000 as element 1"));
}

TEST(Gguf, ReadsTensors) {
  const std::string bytes = GoodGguf().Bytes();
  ASSERT_OK_AND_ASSIGN(const auto file, GgufFile::Parse(GgufBytes(bytes), "x.gguf"));
  const std::vector<GgufTensor>& tensors = file->tensors();
  ASSERT_EQ(tensors.size(), 3u);
  EXPECT_EQ(tensors[0].name, "a.weight");
  EXPECT_THAT(tensors[0].shape, ElementsAre(2, 3));  // innermost last
  EXPECT_EQ(tensors[0].dtype, DType::kF32);
  ASSERT_EQ(tensors[0].bytes.size(), 24u);
  EXPECT_EQ(tensors[0].bytes.data(), GgufBytes(bytes).data() + bytes.size() - 204 - 32 - 32);
  EXPECT_THAT(tensors[1].shape, ElementsAre(2));
  EXPECT_THAT(tensors[2].shape, ElementsAre(3, 1, 1, 64));
  EXPECT_EQ(tensors[2].dtype, DType::kQ8_0);
  EXPECT_EQ(tensors[2].bytes.size(), 204u);
  EXPECT_EQ(*tensors[2].path, "x.gguf");
}

TEST(Gguf, ReadsVersion2AndAnyAlignment) {
  GgufBuilder file = GoodGguf();
  file.version = 2;
  EXPECT_TRUE(GgufStatus(file.Bytes()).ok());
  for (const uint32_t alignment : {8, 16, 32, 64, 4096}) {
    file = GoodGguf();
    file.alignment = alignment;
    file.Set("general.alignment", GgufUint32(alignment));
    EXPECT_TRUE(GgufStatus(file.Bytes()).ok()) << alignment;
  }
  EXPECT_TRUE(GgufStatus(GgufBuilder().Bytes()).ok());
  // A file without tensors ends after the keys, without even alignment padding.
  file = GoodGguf();
  file.tensors.clear();
  file.alignment = 1;
  EXPECT_TRUE(GgufStatus(file.Bytes()).ok());
}

TEST(Gguf, RefusesFilesThatAreNotGguf) {
  ExpectGgufRefused("", "magic: found an empty file, allowed: \"GGUF\"");
  ExpectGgufRefused("GG", R"(magic: found "GG")");
  ExpectGgufRefused("This is not a model.", R"(magic: found "This")");
  ExpectGgufRefused(std::string(1 << 16, '\0'), R"(magic: found "\x00)");
  GgufBuilder file = GoodGguf();
  for (const uint32_t version : {0u, 1u, 4u, 65536u}) {
    file.version = version;
    ExpectGgufRefused(file.Bytes(), "version: found ");
  }
  file.version = __builtin_bswap32(3);
  ExpectGgufRefused(file.Bytes(),
                    "version: found 3 in big-endian order, allowed: 2, 3, little-endian");
}

TEST(Gguf, RefusesCountsThatDoNotFitTheFile) {
  GgufBuilder file = GoodGguf();
  for (const int64_t change : {int64_t{1} << 60, int64_t{-19}, int64_t{1000}}) {
    file = GoodGguf();
    file.num_keys_change = change;
    ExpectGgufRefused(file.Bytes(), "number of keys: found ");
    file = GoodGguf();
    file.num_tensors_change = change;
    ExpectGgufRefused(file.Bytes(), "number of tensors: found ");
  }
  file = {};
  file.num_keys_change = 150'000;
  ExpectGgufRefused(file.Bytes() + std::string(4'000'000, '\0'),
                    "found 150000, allowed: at most 100000");
  file = {};
  file.num_tensors_change = 250'000;
  ExpectGgufRefused(file.Bytes() + std::string(9'000'000, '\0'),
                    "found 250000, allowed: at most 200000");
}

TEST(Gguf, RefusesInvalidKeys) {
  const auto refused_with = [](const std::string& value, const std::string& says) {
    GgufBuilder file = GoodGguf();
    file.Set("k", value);
    ExpectGgufRefused(file.Bytes(), absl::StrCat("key \"k\": ", says));
  };
  refused_with(GgufValue(8, GgufNumber(uint64_t{1} << 63)),
               "found a string of 9223372036854775808");
  refused_with(GgufValue(99, std::string(8, '\0')),
               "found a value of type 99, allowed: types from");
  refused_with(GgufArray(77, 2, std::string(8, '\0')), "found an array of values of type 77");
  refused_with(GgufArray(6, uint64_t{1} << 60, ""),
               "found an array of 1152921504606846976 elements");
  refused_with(GgufArray(4, (uint64_t{1} << 62) + 4, std::string(16, '\0')),
               "found an array of 4611");
  refused_with(GgufArray(8, uint64_t{1} << 60, GgufText("a")),
               "found an array of 1152921504606846976");
  refused_with(GgufArray(8, 2, GgufText("a") + GgufNumber(uint64_t{1} << 40)),
               "found a string of an array of 1099511627776 bytes");
  refused_with(GgufArray(9, 1, GgufArray(4, 1, GgufNumber(1u)).substr(4)),
               "found an array of nested arrays");
  // As deep as a file of this size can be.
  std::string nested;
  for (int i = 0; i < 200'000; ++i) nested += GgufNumber(9u) + GgufNumber(uint64_t{1});
  refused_with(GgufValue(9, nested), "found an array of nested arrays");

  GgufBuilder file = GoodGguf();
  file.keys.emplace_back("u8", GgufUint32(1));
  ExpectGgufRefused(file.Bytes(), R"(key "u8": found twice, allowed: once)");
  file = GoodGguf();
  file.Set(std::string(65'536, 'k'), GgufUint32(1));
  ExpectGgufRefused(file.Bytes(),
                    "key 19 of 19: found a name of 65536 bytes, allowed: at most 65535");
  file = {};
  file.keys.emplace_back("", "");
  file.keys[0].second = GgufValue(0, "1");
  const std::string long_key =
      absl::StrReplaceAll(file.Bytes(), {{std::string(8, '\0') + std::string("\0\0\0\0", 4) + "1",
                                          GgufNumber(uint64_t{1} << 40) + "12345"}});
  ExpectGgufRefused(long_key, "key 1 of 1: found a name of 1099511627776 bytes");
}

TEST(Gguf, RefusesAlignmentsThatAreNotPowersOfTwo) {
  for (const uint32_t alignment : {0, 1, 3, 4, 12, 24, 1 << 21}) {
    GgufBuilder file = GoodGguf();
    file.Set("general.alignment", GgufUint32(alignment));
    ExpectGgufRefused(file.Bytes(), absl::StrCat(R"(key "general.alignment": found )", alignment));
  }
  GgufBuilder file = GoodGguf();
  file.Set("general.alignment", GgufString("32"));
  ExpectGgufRefused(file.Bytes(), R"(key "general.alignment": found the string "32")");
}

TEST(Gguf, RefusesInvalidTensors) {
  const auto refused_with = [](const GgufBuilder::Tensor& changed, const std::string& says) {
    GgufBuilder file = GoodGguf();
    file.tensors[0] = changed;
    ExpectGgufRefused(file.Bytes(), absl::StrCat("tensor \"w\": ", says));
  };
  const std::string bytes(1024, '\0');
  refused_with({"w", {}, 0, bytes}, "found 0 dimensions, allowed: from 1 to 4");
  refused_with({"w", {1, 1, 1, 1, 1}, 0, bytes}, "found 5 dimensions");
  refused_with({"w", {32, 0}, 0, bytes}, "found a dimension of 0");
  refused_with({"w", {uint64_t{1} << 62, uint64_t{1} << 62}, 0, bytes},
               "found a dimension of 4611");
  refused_with({"w", {1 << 30, 1 << 30, 1 << 4}, 0, bytes},
               "found shape [16, 1073741824, 1073741824]");
  refused_with({"w", {33, 32}, 8, bytes},
               "found rows of 33, allowed: multiples of 32, the block of Q8_0");
  refused_with({"w", {128, 1}, 12, bytes}, "found rows of 128, allowed: multiples of 256");
  refused_with({"w", {256, 1}, 0, bytes, 1 << 20}, "found 1024 bytes from offset 1048576 on");
  refused_with({"w", {256, 1}, 0, bytes, -32}, "found 1024 bytes from offset 18446744073709551584");
  refused_with({"w", {256, 1}, 0, bytes, 1},
               "found offset 1, allowed: multiples of the alignment 32");
  refused_with({"w", {256, 1}, 9999, bytes}, "found type 9999, allowed: F32, F16, Q4_0, Q4_1, ");
  refused_with({"w", {256, 1}, 4, bytes}, "found type 4, allowed: ");
  GgufBuilder file = GoodGguf();
  file.tensors[1] = file.tensors[0];
  ExpectGgufRefused(file.Bytes(), R"(tensor "a.weight": found twice, allowed: once)");
  file = GoodGguf();
  file.tensors[1].offset_change = -32;
  ExpectGgufRefused(file.Bytes(),
                    R"(tensor "a.bias": found an offset within the bytes of "a.weight")");
}

TEST(Gguf, RefusesUnsupportedTypesByName) {
  const std::vector<std::pair<uint32_t, std::string>> types = {
      {9, "Q8_1"},   {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"},
      {21, "IQ3_S"}, {22, "IQ2_S"}, {24, "I8"},      {25, "I16"},    {26, "I32"},     {28, "F64"},
      {29, "IQ1_M"}, {34, "TQ1_0"}, {35, "TQ2_0"},   {39, "MXFP4"}};
  for (const auto& [number, name] : types) {
    GgufBuilder file = GoodGguf();
    file.tensors[0].type = number;
    ExpectGgufRefused(file.Bytes(), absl::StrCat("tensor \"a.weight\": found type ", name, " (",
                                                 number, "), allowed: "));
  }
}

TEST(Gguf, ReadsEveryTypeWithItsSize) {
  // Reference: the sizes of the blocks of ggml's formats.
  struct {
    uint32_t number;
    DType dtype;
    int inputs;
    int bytes;
  } const kTypes[] = {
      {0, DType::kF32, 1, 4},      {1, DType::kF16, 1, 2},        {2, DType::kQ4_0, 32, 18},
      {3, DType::kQ4_1, 32, 20},   {6, DType::kQ5_0, 32, 22},     {7, DType::kQ5_1, 32, 24},
      {8, DType::kQ8_0, 32, 34},   {10, DType::kQ2K, 256, 84},    {11, DType::kQ3K, 256, 110},
      {12, DType::kQ4K, 256, 144}, {13, DType::kQ5K, 256, 176},   {14, DType::kQ6K, 256, 210},
      {20, DType::kIq4Nl, 32, 18}, {23, DType::kIq4Xs, 256, 136}, {30, DType::kBF16, 1, 2}};
  for (const auto& type : kTypes) {
    GgufBuilder file;
    const std::string bytes(3 * 2 * type.bytes, 'b');
    file.tensors.push_back({"w", {uint64_t(2 * type.inputs), 3}, type.number, bytes});
    std::string whole = file.Bytes();
    ASSERT_OK_AND_ASSIGN(const auto read, GgufFile::Parse(GgufBytes(whole), "x.gguf"));
    EXPECT_EQ(read->tensors()[0].dtype, type.dtype);
    EXPECT_EQ(read->tensors()[0].bytes.size(), bytes.size());
    whole.pop_back();
    ExpectGgufRefused(whole, "allowed: up to ");
  }
}

TEST(Gguf, ReportsTruncatedFilesAsCutOff) {
  const std::string whole = GoodGguf().Bytes();
  ASSERT_TRUE(GgufStatus(whole).ok());
  for (size_t size = 0; size < whole.size(); ++size) {
    ExpectGgufRefused(whole.substr(0, size), "allowed: ");
    if (size < 4) continue;  // too short for the magic bytes
    ExpectGgufRefused(whole.substr(0, size), "; the file seems to be cut off");
  }
}

// Changes every byte before the tensors' data in several ways: nothing crashes, and the tensors of
// accepted files lie in the file.
TEST(Gguf, ChangedBytesAreRefusedOrHarmless) {
  const std::string whole = GoodGguf().Bytes();
  std::string file = whole;
  int num_refused = 0;
  for (size_t i = 0; i < whole.size() - 300; ++i) {
    for (const int change : {1, 0x80, 0x20}) {
      file[i] = static_cast<char>(whole[i] ^ change);
      const auto read = GgufFile::Parse(GgufBytes(file), "x.gguf");
      num_refused += !read.ok();
      if (!read.ok()) continue;
      for (const GgufTensor& tensor : (*read)->tensors()) {
        const char* const begin = reinterpret_cast<const char*>(tensor.bytes.data());
        ASSERT_LE(file.data(), begin);
        ASSERT_LE(begin + tensor.bytes.size(), file.data() + file.size());
      }
    }
    file[i] = whole[i];
  }
  EXPECT_GT(num_refused, 500);
}

TEST(Gguf, ShowsHostileNamesInOnePrintableLine) {
  GgufBuilder file = GoodGguf();
  file.tensors[0].name = "\n\x1b[31m" + std::string(5000, 'x');
  file.tensors[0].type = 77;
  ExpectGgufRefused(file.Bytes(), R"(tensor "\n\x1b[31mxxx)");
}

class GgufFolder : public FolderTest {
 protected:
  // Part `index` of `num_parts`, which holds one tensor.
  static GgufBuilder Part(int index, int num_parts, const std::string& tensor) {
    GgufBuilder part;
    if (index == 0) part.Set("general.architecture", GgufString("llama"));
    part.Set("split.no", GgufValue(2, GgufNumber(static_cast<uint16_t>(index))));
    part.Set("split.count", GgufValue(2, GgufNumber(static_cast<uint16_t>(num_parts))));
    part.Set("split.tensors.count", GgufValue(5, GgufNumber(int32_t{num_parts})));
    part.AddFloats(tensor, {1}, {static_cast<float>(index)});
    return part;
  }
  void ExpectNotOpened(const std::string& name, absl::StatusCode code, const std::string& says) {
    const absl::Status status = GgufFile::Open(Path(name)).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(says));
    EXPECT_THAT(std::string(status.message()), StartsWith(folder_));
  }
};

TEST_F(GgufFolder, ReadsAllPartsFromTheFirstOne) {
  for (int i = 0; i < 3; ++i) {
    Write(absl::StrCat("m-0000", i + 1, "-of-00003.gguf"),
          Part(i, 3, absl::StrCat("t", i)).Bytes());
  }
  ASSERT_OK_AND_ASSIGN(const auto file, GgufFile::Open(Path("m-00001-of-00003.gguf")));
  EXPECT_EQ(file->path(), Path("m-00001-of-00003.gguf"));
  EXPECT_EQ(*file->GetString("general.architecture"), "llama");
  ASSERT_EQ(file->tensors().size(), 3u);
  for (int i = 0; i < 3; ++i) {
    const GgufTensor& tensor = file->tensors()[i];
    EXPECT_EQ(tensor.name, absl::StrCat("t", i));
    EXPECT_EQ(*tensor.path, Path(absl::StrCat("m-0000", i + 1, "-of-00003.gguf")));
    EXPECT_EQ(*reinterpret_cast<const float*>(tensor.bytes.data()), i);
  }
  ExpectNotOpened("m-00002-of-00003.gguf", absl::StatusCode::kInvalidArgument,
                  absl::StrCat("key \"split.no\": found 1, allowed: 0, the first part, which is ",
                               Path("m-00001-of-00003.gguf")));
}

TEST_F(GgufFolder, RefusesPartsThatDoNotFitTogether) {
  const std::string first = "m-00001-of-00002.gguf";
  const std::string second = "m-00002-of-00002.gguf";
  Write(first, Part(0, 2, "a").Bytes());
  ExpectNotOpened(first, absl::StatusCode::kNotFound,
                  absl::StrCat(Path(second), ": no such file, but ", Path(first), " is the first"));
  Write(second, Part(1, 2, "a").Bytes());
  ExpectNotOpened(first, absl::StatusCode::kInvalidArgument,
                  absl::StrCat(Path(second), ": tensor \"a\": also in ", Path(first)));
  Write(second, Part(1, 3, "b").Bytes());
  ExpectNotOpened(first, absl::StatusCode::kInvalidArgument,
                  absl::StrCat(Path(second), ": key \"split.count\": found 3, allowed: 2"));
  Write(second, Part(0, 2, "b").Bytes());
  ExpectNotOpened(first, absl::StatusCode::kInvalidArgument,
                  absl::StrCat(Path(second), ": key \"split.no\": found 0, allowed: 1"));
  GgufBuilder part = Part(1, 2, "b");
  part.AddFloats("c", {1}, {1});
  Write(second, part.Bytes());
  ExpectNotOpened(first, absl::StatusCode::kInvalidArgument,
                  "key \"split.tensors.count\": found 2, allowed: 3");
  Write(second, "GGUX");
  ExpectNotOpened(first, absl::StatusCode::kInvalidArgument, absl::StrCat(Path(second), ": magic"));
  Write(second, Part(1, 2, "b").Bytes());
  EXPECT_TRUE(GgufFile::Open(Path(first)).ok());

  for (const char* const name :
       {"m.gguf", "m-00001-of-00003.gguf", "m-0001-of-00002.gguf", "m-00001-of-00002.bin",
        "m-+0001-of-00002.gguf", "m_00001-of-00002.gguf", "00001-of-00002.gguf"}) {
    Write(name, Part(0, 2, "a").Bytes());
    ExpectNotOpened(name, absl::StatusCode::kInvalidArgument,
                    "key \"split.count\": found 2, allowed: 1 unless the file is named as part");
  }
  Write("one.gguf", Part(0, 1, "a").Bytes());
  EXPECT_TRUE(GgufFile::Open(Path("one.gguf")).ok());
}

TEST_F(GgufFolder, RefusesPathsThatAreNotFiles) {
  ExpectNotOpened("absent.gguf", absl::StatusCode::kNotFound, "absent.gguf");
  std::filesystem::create_directory(Path("folder.gguf"));
  ExpectNotOpened("folder.gguf", absl::StatusCode::kInvalidArgument, "not a regular file");
}

TEST_F(GgufFolder, FindsTheModelOfAPath) {
  EXPECT_EQ(*GgufIn(folder_), "");
  EXPECT_EQ(*GgufIn(Path("absent")), "");
  EXPECT_EQ(*GgufIn(Path("absent.gguf")), Path("absent.gguf"));
  Write("model.bin", GoodGguf().Bytes());
  EXPECT_TRUE(IsGguf(Path("model.bin")));
  EXPECT_EQ(*GgufIn(Path("model.bin")), Path("model.bin"));
  EXPECT_EQ(*GgufIn(folder_), "");  // in a folder only names count
  Write("notes.txt", "GGU");
  EXPECT_FALSE(IsGguf(Path("notes.txt")));
  EXPECT_EQ(*GgufIn(Path("notes.txt")), "");

  std::filesystem::create_directory(Path("x.gguf"));
  EXPECT_EQ(*GgufIn(folder_), "");
  EXPECT_THAT(std::string(GgufIn(Path("x.gguf")).status().message()),
              StartsWith(absl::StrCat(Path("x.gguf"), ": found a folder without one, allowed: a")));
  Write("x.gguf/m-00001-of-00002.gguf", "");
  Write("x.gguf/m-00002-of-00002.gguf", "");
  EXPECT_EQ(*GgufIn(Path("x.gguf")), Path("x.gguf/m-00001-of-00002.gguf"));
  Write("a.gguf", "");
  EXPECT_EQ(*GgufIn(folder_), Path("a.gguf"));
  Write("b.gguf", "");
  const absl::Status several = GgufIn(folder_).status();
  EXPECT_EQ(several.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(several.message()),
              HasSubstr(absl::StrCat("found 2 GGUF models, ", Path("a.gguf"), " and ",
                                     Path("b.gguf"), " among them, allowed: one")));
  Write("config.json", "{}");
  EXPECT_EQ(*GgufIn(folder_), "");
}

}  // namespace
}  // namespace tandem
