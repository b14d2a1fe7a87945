// Folders that tandem quantize writes.
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "engine/engine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/transformer.h"
#include "nlohmann/json.hpp"
#include "tests/golden_file.h"
#include "tools/quantized_folder.h"
#include "tools/random_model.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class QuantizedFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = absl::StrCat(testing::TempDir(), "quantize_test_",
                           testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string Path(const std::string& name) const { return absl::StrCat(folder_, "/", name); }
  std::string MakeModel(const std::string& shape) const {
    const auto parsed = RandomModelShape::Parse(shape);
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_TRUE(WriteRandomModel(*parsed, 7, Path("model"), [](int64_t) {}).ok());
    return Path("model");
  }
  static absl::StatusOr<QuantizedFolder> Quantize(const std::string& source, DType dtype,
                                                  const std::string& out) {
    return WriteQuantizedFolder(source, dtype, out, [](int64_t, int64_t) {});
  }

  // Tokens and the bits of their log-probabilities, drawn with a seed.
  static absl::StatusOr<Completion> Generate(const std::string& folder,
                                             const std::string& quantize) {
    EngineOptions options{.target = folder, .drafter = DrafterKind::kNone, .quantize = quantize};
    options.kv_memory_bytes = 1 << 24;
    auto engine = Engine::Create(options);
    if (!engine.ok()) return engine.status();
    Request request;
    request.prompt_ids = {5, 100, 17};
    request.max_tokens = 20;
    request.sampling.temperature = 0.8f;
    request.seed = 3;
    request.ignore_eos = true;
    request.logprobs.num_top = 2;
    return (*engine)->Generate(request);
  }

 private:
  std::string folder_;
};

// Inputs that are no multiple of a group, a head of its own and a tied one.
TEST_F(QuantizedFolderTest, GeneratesWhatQuantisingAtLoadDoes) {
  const std::string shapes[] = {"base=tiny,hidden=72,ffn=200", "base=tiny,tied=0,dtype=float16",
                                "base=tiny,family=qwen3,dtype=float32"};
  for (const std::string& shape : shapes) {
    const std::string model = MakeModel(shape);
    const auto floats = Generate(model, "none");
    ASSERT_TRUE(floats.ok()) << floats.status();
    for (const char* name : {"int8", "int4"}) {
      const std::string out = Path(name);
      const auto written =
          Quantize(model, std::string(name) == "int8" ? DType::kInt8 : DType::kInt4, out);
      ASSERT_TRUE(written.ok()) << written.status();
      EXPECT_LT(written->bytes_after, written->bytes_before);
      const auto at_load = Generate(model, name);
      const auto from_folder = Generate(out, "none");
      ASSERT_TRUE(at_load.ok() && from_folder.ok()) << from_folder.status();
      EXPECT_EQ(at_load->token_ids, from_folder->token_ids);
      for (size_t i = 0; i < at_load->logprobs.size(); ++i) {
        EXPECT_EQ(at_load->logprobs[i].logprob, from_folder->logprobs[i].logprob);
        EXPECT_NE(at_load->logprobs[i].logprob, floats->logprobs[i].logprob);
      }
      fs::remove_all(out);
    }
    fs::remove_all(model);
  }
}

TEST_F(QuantizedFolderTest, RefusesToQuantiseTwice) {
  const std::string model = MakeModel("tiny");
  ASSERT_TRUE(Quantize(model, DType::kInt8, Path("int8")).ok());
  EXPECT_THAT(std::string(Quantize(Path("int8"), DType::kInt4, Path("int4")).status().message()),
              HasSubstr("quantised to int8 already"));
  EXPECT_FALSE(fs::exists(Path("int4")));
  EXPECT_THAT(std::string(Generate(Path("int8"), "int4").status().message()),
              HasSubstr("quantize: found int4, allowed: none"));
  EXPECT_EQ(Quantize(model, DType::kInt8, Path("int8")).status().code(),
            absl::StatusCode::kAlreadyExists);
}

TEST_F(QuantizedFolderTest, RefusesGgufModels) {
  const std::string source = GoldenGgufPath("llama-small.F32.gguf");
  EXPECT_EQ(std::string(Quantize(source, DType::kInt8, Path("int8")).status().message()),
            source + ": found a GGUF model, allowed: a Hugging Face folder");
  EXPECT_FALSE(fs::exists(Path("int8")));
}

TEST_F(QuantizedFolderTest, TensorsThatDoNotFitAreNamed) {
  const std::string model = MakeModel("tiny");
  ASSERT_TRUE(Quantize(model, DType::kInt8, Path("int8")).ok());
  std::ifstream in(Path("int8/config.json"));
  nlohmann::json config = nlohmann::json::parse(in);
  EXPECT_EQ(config["quantization_config"]["bits"], 8);
  const auto error_with = [&](const nlohmann::json& quantization) {
    config["quantization_config"] = quantization;
    std::ofstream(Path("int8/config.json")) << config;
    return std::string(Generate(Path("int8"), "none").status().message());
  };
  EXPECT_THAT(error_with(nullptr), HasSubstr("dtype: found I8"));
  EXPECT_THAT(error_with({{"quant_method", "gptq"}}), HasSubstr("quantization_config: found"));
  EXPECT_THAT(error_with({{"quant_method", "tandem"}, {"bits", 5}}),
              HasSubstr("quantization_config.bits: found 5, allowed: 4 or 8"));
  EXPECT_THAT(error_with({{"quant_method", "tandem"}, {"bits", 8}, {"group_size", 64}}),
              HasSubstr("quantization_config.group_size: found 64"));
  EXPECT_THAT(error_with({{"quant_method", "tandem"}, {"bits", 8}, {"sym", true}}),
              HasSubstr("quantization_config.sym: found true"));
}

}  // namespace
}  // namespace tandem
