// Weights that are packed after the first token.
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "engine/engine.h"
#include "gtest/gtest.h"
#include "model/transformer.h"
#include "tools/random_model.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

class PackLaterTest : public ::testing::Test {
 protected:
  // The one layer's gate and up, and the tied head, are large enough to stay unpacked.
  static void SetUpTestSuite() {
    folder_ = absl::StrCat(testing::TempDir(), "pack_later_test");
    fs::remove_all(folder_);
    const auto shape =
        RandomModelShape::Parse("base=tiny,layers=1,hidden=512,ffn=2100,vocab=4100,dtype=bfloat16");
    ASSERT_TRUE(shape.ok()) << shape.status();
    ASSERT_TRUE(WriteRandomModel(*shape, 7, folder_, [](int64_t) {}).ok());
  }
  static void TearDownTestSuite() { fs::remove_all(folder_); }

  static Completion Generate(const std::string& quantize, const std::string& draft, bool later) {
    EngineOptions options{.target = folder_, .draft = draft, .quantize = quantize};
    options.kv_memory_bytes = 1 << 24;
    options.pack_later = later;
    auto engine = Engine::Create(options);
    EXPECT_TRUE(engine.ok()) << engine.status();
    Request request{.prompt_ids = {5, 100, 17}, .max_tokens = 8, .seed = 3, .ignore_eos = true};
    request.sampling.temperature = 0.8f;
    request.logprobs.num_top = 2;
    auto completion = (*engine)->Generate(request);
    EXPECT_TRUE(completion.ok()) << completion.status();
    return *std::move(completion);
  }

  static std::string folder_;
};
std::string PackLaterTest::folder_;

TEST_F(PackLaterTest, GeneratesTheSameBits) {
  for (const char* quantize : {"none", "int8", "int4"}) {
    for (const std::string& draft : {std::string(), folder_}) {
      const Completion now = Generate(quantize, draft, false);
      const Completion later = Generate(quantize, draft, true);
      EXPECT_EQ(now.token_ids, later.token_ids) << quantize;
      ASSERT_EQ(now.logprobs.size(), later.logprobs.size());
      for (size_t i = 0; i < now.logprobs.size(); ++i) {
        EXPECT_EQ(now.logprobs[i].logprob, later.logprobs[i].logprob) << quantize;
      }
    }
  }
}

TEST_F(PackLaterTest, SettlesWhenToldTo) {
  auto backend = MakeCpuBackend({.num_threads = 1});
  ASSERT_TRUE(backend.ok());
  auto now = Transformer::Load(folder_, backend->get());
  auto later = Transformer::Load(folder_, backend->get(), Quantization::kNone, Packing::kLater);
  ASSERT_TRUE(now.ok() && later.ok());
  EXPECT_TRUE((*now)->is_settled());
  EXPECT_FALSE((*later)->is_settled());
  (*later)->Settle();
  EXPECT_TRUE((*later)->is_settled());
}

}  // namespace
}  // namespace tandem
