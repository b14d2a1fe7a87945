#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/mapped_file.h"
#include "base/source_path_testing.h"
#include "model/checkpoint/safetensors.h"
#include "model/checkpoint/weights.h"
#include "tests/folder_testing.h"
#include "tests/status_testing.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// Reads a file that tests/data/torch/make.py wrote.
std::string TorchBytes(const std::string& name) {
  return *ReadFile(absl::StrCat(SourcePath("tests/data/torch/"), name));
}

absl::StatusOr<std::vector<SafetensorsEntry>> ParseBytes(const std::string& bytes) {
  return ParseTorchFile({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}, "file");
}

std::string ErrorOfTorchFile(const std::string& bytes) {
  const auto entries = ParseBytes(bytes);
  return entries.ok() ? "" : std::string(entries.status().message());
}

template <typename T>
std::vector<T> ElementsOf(const SafetensorsEntry& entry) {
  std::vector<T> elements(entry.num_elements);
  EXPECT_EQ(entry.bytes.size(), elements.size() * sizeof(T)) << entry.name;
  std::memcpy(elements.data(), entry.bytes.data(), entry.bytes.size());
  return elements;
}

TEST(TorchFile, ReadsTheTensorsOfADict) {
  const std::string file = TorchBytes("state_dict.bin");
  ASSERT_OK_AND_ASSIGN(const auto entries, ParseBytes(file));
  const struct {
    const char* name;
    const char* dtype;
    std::vector<int64_t> shape;
  } expected[] = {{"fc.weight", "F32", {3, 2}}, {"lm_head.weight", "F32", {3, 2}},
                  {"norm.weight", "BF16", {2}}, {"half", "F16", {1, 3}},
                  {"d2t", "I64", {3}},          {"t2d", "BOOL", {4}},
                  {"empty", "F32", {0, 5}},     {"scalar", "F64", {}},
                  {"narrow", "I8", {2}}};
  ASSERT_THAT(entries, SizeIs(std::size(expected)));
  for (size_t i = 0; i < entries.size(); ++i) {
    EXPECT_EQ(entries[i].name, expected[i].name);
    EXPECT_EQ(entries[i].dtype_name, expected[i].dtype);
    EXPECT_EQ(entries[i].shape, expected[i].shape) << expected[i].name;
  }
  EXPECT_THAT(ElementsOf<float>(entries[0]), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(ElementsOf<float>(entries[1]), ElementsAre(6, 7, 8, 9, 10, 11));
  EXPECT_THAT(ElementsOf<uint16_t>(entries[2]), ElementsAre(0x3F00, 0xC000));
  EXPECT_EQ(entries[2].dtype, DType::kBF16);
  EXPECT_EQ(entries[3].dtype, DType::kF16);
  EXPECT_THAT(ElementsOf<int64_t>(entries[4]), ElementsAre(0, 3, 300));
  EXPECT_THAT(ElementsOf<uint8_t>(entries[5]), ElementsAre(1, 0, 0, 1));
  EXPECT_THAT(ElementsOf<double>(entries[7]), ElementsAre(7.0));
}

TEST(TorchFile, ReadsTheTensorsOfAModule) {
  const std::string file = TorchBytes("module.bin");
  ASSERT_OK_AND_ASSIGN(const auto entries, ParseBytes(file));
  ASSERT_THAT(entries, SizeIs(2));
  EXPECT_EQ(entries[0].name, "weight");
  EXPECT_THAT(ElementsOf<float>(entries[0]), ElementsAre(1, 2));
  EXPECT_THAT(ElementsOf<float>(entries[1]), ElementsAre(3));
}

TEST(TorchFile, RefusesEverythingElseInAPickle) {
  EXPECT_THAT(ErrorOfTorchFile(TorchBytes("calls_a_function.bin")),
              HasSubstr("file: data.pkl: byte 13: found \"posix system\", allowed: "));
  EXPECT_THAT(ErrorOfTorchFile(TorchBytes("before_zip.bin")), HasSubstr("since version 1.6"));
  EXPECT_THAT(ErrorOfTorchFile(TorchBytes("transposed.bin")), HasSubstr("shape [2, 6] with gaps"));
  EXPECT_THAT(ErrorOfTorchFile(TorchBytes("nested.bin")),
              HasSubstr("no tensor for \"state_dict\""));
  EXPECT_THAT(ErrorOfTorchFile(TorchBytes("numbered.bin")),
              HasSubstr("a key that is not a string"));
  EXPECT_THAT(ErrorOfTorchFile(TorchBytes("listed.bin")), HasSubstr("opcode 5d"));
  EXPECT_THAT(ErrorOfTorchFile(TorchBytes("tensor.bin")), HasSubstr("a dict of tensors"));
}

TEST(TorchFile, RefusesInconsistentArchives) {
  const std::string file = TorchBytes("module.bin");
  const auto replaced = [&](absl::string_view from, absl::string_view to) {
    EXPECT_TRUE(absl::StrContains(file, from));
    EXPECT_EQ(from.size(), to.size());
    return ErrorOfTorchFile(absl::StrReplaceAll(file, {{from, to}}));
  };
  EXPECT_THAT(replaced("module/data.pkl", "module/data.pk_"), HasSubstr("no data.pkl"));
  EXPECT_THAT(replaced("module/data/0", "module/dato/0"), HasSubstr("storage \"0\""));
  EXPECT_THAT(replaced("module/data/0", "module/data/1"), HasSubstr("two storages \"1\""));
  EXPECT_THAT(replaced("little", "bigger"), HasSubstr("byteorder"));
  EXPECT_THAT(replaced("FloatStorage", "FloatStorAge"), HasSubstr("\"torch FloatStorAge\""));
  EXPECT_THAT(replaced("K\x02tq", "K\x64tq"),
              HasSubstr("storage \"0\" of 100 elements, allowed: at most 2,"));
}

TEST(TorchFile, RefusesEveryTruncation) {
  const std::string file = TorchBytes("state_dict.bin");
  for (size_t size = 0; size < file.size(); ++size) {
    EXPECT_NE(ErrorOfTorchFile(file.substr(0, size)), "") << size;
  }
}

TEST(TorchFile, IsReadIfAFolderHasNoOtherWeights) {
  const TestFolder folder;
  std::filesystem::copy(SourcePath("tests/data/torch/state_dict.bin"),
                        folder.Path("pytorch_model.bin"));
  ASSERT_OK_AND_ASSIGN(const auto weights, Weights::Open(folder.path()));
  ASSERT_OK_AND_ASSIGN(const auto matrix, weights->Get("lm_head.weight", {3, 2}));
  EXPECT_EQ(static_cast<const float*>(matrix.data)[5], 11.0f);
  EXPECT_THAT(weights->files(), ElementsAre(folder.Path("pytorch_model.bin")));
  std::filesystem::copy(SourcePath("tests/data/models/llama-gqa/model.safetensors"),
                        folder.Path("model.safetensors"));
  EXPECT_FALSE((*Weights::Open(folder.path()))->Has("fc.weight"));
}

}  // namespace
}  // namespace tandem
