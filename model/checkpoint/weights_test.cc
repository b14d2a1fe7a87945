#include "model/checkpoint/weights.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tandem/json_value.h"
#include "tests/folder_testing.h"
#include "tests/golden_file.h"
#include "tests/status_testing.h"

namespace tandem {
namespace {

using Json = SortedJson;

class WeightsTest : public FolderTest {
 protected:
  // Writes a file of F32 tensors [1], one for each name; the i-th holds first + i. `padding` spaces
  // after the header move the data.
  void WriteTensors(const std::string& file, const std::vector<std::string>& names, float first,
                    int padding = 0) {
    Json header = Json::object();
    std::string data;
    for (size_t i = 0; i < names.size(); ++i) {
      header[names[i]] = {{"dtype", "F32"}, {"shape", {1}}, {"data_offsets", {4 * i, 4 * i + 4}}};
      const float value = first + static_cast<float>(i);
      data.append(reinterpret_cast<const char*>(&value), 4);
    }
    const std::string text = header.dump() + std::string(padding, ' ');
    const uint64_t size = text.size();
    Write(file, std::string(reinterpret_cast<const char*>(&size), 8) + text + data);
  }
  void WriteIndex(const Json& weight_map) {
    Write("model.safetensors.index.json",
          Json{{"metadata", {{"total_size", 8}}}, {"weight_map", weight_map}}.dump());
  }
  void ExpectRefused(absl::StatusCode code, const std::string& says) {
    const absl::Status status = Weights::Open(folder_).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), says)) << status;
    EXPECT_TRUE(absl::StartsWith(status.message(), folder_)) << status;
    EXPECT_FALSE(absl::StrContains(status.message(), "\n")) << status;
  }
};

float ValueOf(const Weights& weights, std::string_view name) {
  const auto view = weights.Get(name, {1});
  EXPECT_TRUE(view.ok()) << view.status();
  return *static_cast<const float*>(view->data);
}

TEST_F(WeightsTest, ReadsEveryGoldenModel) {
  int num_models = 0;
  for (const auto& entry : std::filesystem::directory_iterator(GoldenModelPath(""))) {
    ASSERT_OK_AND_ASSIGN(const auto weights, Weights::Open(entry.path().string()));
    const std::vector<std::string> names = weights->names();
    EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
    EXPECT_GT(names.size(), 10u);
    for (const std::string& name : names) EXPECT_TRUE(weights->Has(name));
    ++num_models;
  }
  EXPECT_EQ(num_models, 32);
}

TEST_F(WeightsTest, GivesMatricesAndVectors) {
  ASSERT_OK_AND_ASSIGN(const auto weights, Weights::Open(GoldenModelPath("llama-bf16")));
  ASSERT_OK_AND_ASSIGN(const auto matrix, weights->Get("model.embed_tokens.weight", {512, 32}));
  EXPECT_EQ(matrix.dtype, DType::kBF16);
  EXPECT_EQ(matrix.rows, 512);
  EXPECT_EQ(matrix.cols, 32);
  EXPECT_EQ(matrix.stride, 32);
  EXPECT_EQ(weights->num_elements("model.embed_tokens.weight"), 512 * 32);
  const auto vector = weights->Get("model.norm.weight", {32});
  ASSERT_TRUE(vector.ok());
  EXPECT_EQ(vector->rows, 1);
  EXPECT_EQ(vector->cols, 32);
}

TEST_F(WeightsTest, GetSaysWhatIsMissingOrWrong) {
  WriteTensors("model.safetensors", {"a"}, 1);
  const auto weights = Weights::Open(folder_);
  ASSERT_TRUE(weights.ok());
  EXPECT_FALSE((*weights)->Has("b"));
  const absl::Status missing = (*weights)->Get("b", {3, 4}).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(missing.message(), absl::StrCat(folder_,
                                            "/model.safetensors: tensor \"b\": not found, "
                                            "wanted with shape [3, 4]"));
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{2}, {1, 1}, {0}}) {
    const absl::Status wrong = (*weights)->Get("a", shape).status();
    EXPECT_EQ(wrong.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(absl::StrContains(wrong.message(), "tensor \"a\": shape: found [1], allowed: ["))
        << wrong;
  }
}

TEST_F(WeightsTest, GetRefusesTypesThatAreNotFloatingPoint) {
  const std::string header = R"({"a":{"dtype":"I32","shape":[1],"data_offsets":[0,4]}})";
  const uint64_t size = header.size();
  Write("model.safetensors",
        std::string(reinterpret_cast<const char*>(&size), 8) + header + std::string(4, '\0'));
  ASSERT_OK_AND_ASSIGN(const auto weights, Weights::Open(folder_));
  const absl::Status status = weights->Get("a", {1}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(status.message(), "dtype: found I32, allowed: F32, F16, BF16"));
}

TEST_F(WeightsTest, UnalignedDataIsCopiedOnce) {
  for (int padding = 0; padding < 8; ++padding) {
    WriteTensors("model.safetensors", {"a", "b"}, 5, padding);
    ASSERT_OK_AND_ASSIGN(const auto weights, Weights::Open(folder_));
    std::vector<std::thread> threads;
    std::vector<const void*> seen(4);
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] { seen[t] = weights->Get("b", {1})->data; });
    }
    for (std::thread& thread : threads) thread.join();
    for (const void* data : seen) {
      EXPECT_EQ(data, seen[0]);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 4, 0u);
    }
    EXPECT_EQ(ValueOf(*weights, "a"), 5);
    EXPECT_EQ(ValueOf(*weights, "b"), 6);
  }
}

TEST_F(WeightsTest, SaysThatAFolderHasNoWeights) {
  ExpectRefused(absl::StatusCode::kNotFound,
                "found neither model.safetensors nor model.safetensors.index.json");
  const absl::Status status = Weights::Open(folder_ + "/no").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
}

TEST_F(WeightsTest, PrefersASingleFileToAnIndex) {
  WriteTensors("model.safetensors", {"a"}, 1);
  WriteIndex({{"b", "missing.safetensors"}});
  ASSERT_OK_AND_ASSIGN(const auto weights, Weights::Open(folder_));
  EXPECT_EQ(weights->names(), std::vector<std::string>{"a"});
}

TEST_F(WeightsTest, ReadsShards) {
  WriteTensors("one", {"a", "c"}, 1);
  WriteTensors("two", {"b"}, 10);
  WriteIndex({{"a", "one"}, {"b", "two"}, {"c", "one"}});
  ASSERT_OK_AND_ASSIGN(const auto weights, Weights::Open(folder_));
  EXPECT_EQ(weights->names(), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(ValueOf(*weights, "a"), 1);
  EXPECT_EQ(ValueOf(*weights, "b"), 10);
  EXPECT_EQ(ValueOf(*weights, "c"), 2);
}

TEST_F(WeightsTest, RefusesShardsThatContradictTheIndex) {
  WriteTensors("one", {"a", "c"}, 1);
  WriteTensors("two", {"b"}, 10);
  WriteIndex({{"a", "one"}, {"b", "two"}, {"c", "two"}});
  ExpectRefused(absl::StatusCode::kInvalidArgument, "two: tensor \"c\": not found, but ");
  WriteIndex({{"a", "one"}, {"b", "two"}, {"c", "one"}, {"d", "two"}});
  ExpectRefused(absl::StatusCode::kInvalidArgument, "two: tensor \"d\": not found, but ");
  WriteIndex({{"a", "one"}, {"b", "two"}});
  ExpectRefused(absl::StatusCode::kInvalidArgument, "one: tensor \"c\": not in ");
  WriteIndex({{"a", "one"}, {"b", "two"}, {"c", "three"}});
  ExpectRefused(absl::StatusCode::kNotFound, "three: no such file, but ");
  WriteTensors("two", {"b", "a"}, 10);
  WriteIndex({{"a", "one"}, {"b", "two"}, {"c", "one"}});
  ExpectRefused(absl::StatusCode::kInvalidArgument, "two: tensor \"a\": also in ");
  Write("two", "");
  ExpectRefused(absl::StatusCode::kInvalidArgument, "two: found 0 bytes");
}

TEST_F(WeightsTest, RefusesShardsOutsideTheFolder) {
  WriteTensors("one", {"a"}, 1);
  const std::string absolute = folder_ + "/one";
  for (const std::string& name :
       {std::string("../one"), absolute, std::string(".."), std::string("."), std::string(),
        std::string("x/../one"), std::string("one\0x", 5), std::string("x\\one")}) {
    WriteIndex({{"a", name}});
    ExpectRefused(absl::StatusCode::kInvalidArgument, "weight_map: tensor \"a\": found ");
  }
  WriteIndex({{"a", 3}});
  ExpectRefused(absl::StatusCode::kInvalidArgument, "found 3, allowed: a file name");
}

TEST_F(WeightsTest, RefusesInvalidIndexFiles) {
  for (const char* const index :
       {"[]", "{}", R"({"weight_map":[]})", R"({"weight_map":{}})", R"({"weight_map":null})"}) {
    Write("model.safetensors.index.json", index);
    ExpectRefused(absl::StatusCode::kInvalidArgument, "weight_map: found ");
  }
  Write("model.safetensors.index.json", "{");
  ExpectRefused(absl::StatusCode::kInvalidArgument, "not JSON");
  Write("model.safetensors.index.json", std::string(100'000, '['));
  ExpectRefused(absl::StatusCode::kInvalidArgument, "nested");
  Write("model.safetensors.index.json", R"({"weight_map":{"a":"one","a":"two"}})");
  ExpectRefused(absl::StatusCode::kInvalidArgument, R"(key "a" twice)");
}

TEST_F(WeightsTest, RefusesAFolderInPlaceOfAFile) {
  std::filesystem::create_directories(folder_ + "/model.safetensors");
  ExpectRefused(absl::StatusCode::kInvalidArgument, "not a regular file");
}

}  // namespace
}  // namespace tandem
