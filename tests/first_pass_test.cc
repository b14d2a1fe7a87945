// The first pass of a model packs its weights.
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/runtime.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/transformer.h"
#include "tandem/engine.h"
#include "tests/folder_testing.h"
#include "tools/checkpoints/random_model.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

class FirstPassTest : public ::testing::Test {
 protected:
  // Most of the file is the matrices of two layers.
  static void SetUpTestSuite() {
    folder_ = new TestFolder();
    const auto shape =
        RandomModelShape::Parse("base=tiny,layers=2,hidden=512,ffn=1504,vocab=500,dtype=bfloat16");
    ASSERT_TRUE(shape.ok()) << shape.status();
    ASSERT_TRUE(WriteRandomModel(*shape, 7, folder_->path(), [](int64_t) {}).ok());
  }
  static void TearDownTestSuite() { delete folder_; }

  static const TestFolder* folder_;
};
const TestFolder* FirstPassTest::folder_;

// Returns the logits after some tokens that a new sequence reads.
std::vector<float> Logits(Transformer& model, PagedKvCache& cache, int num_logits) {
  KvSequence kv = cache.NewSequence();
  const std::vector<TokenId> tokens = {5, 100, 17};
  const ForwardRequest request{.tokens = tokens, .kv = &kv, .num_logits = num_logits};
  const auto logits = model.Forward({&request, 1});
  TANDEM_CHECK(logits.ok());
  const auto* first = static_cast<const float*>(logits->data);
  return {first, first + static_cast<int64_t>(logits->rows) * logits->cols};
}

// Returns how many bytes of the files in `folder` are resident in this process.
int64_t ResidentBytes(const std::string& folder) {
  std::ifstream maps("/proc/self/smaps");
  int64_t bytes = 0;
  bool is_of_folder = false;
  for (std::string line; std::getline(maps, line);) {
    const size_t space = line.find(' ');
    const bool begins_mapping = space == std::string::npos || line[space - 1] != ':';
    if (begins_mapping) is_of_folder = line.find(folder) != std::string::npos;
    if (is_of_folder && line.rfind("Rss:", 0) == 0) bytes += 1024 * std::stoll(line.substr(4));
  }
  return bytes;
}

TEST_F(FirstPassTest, PacksWeightsAndReleasesTheFile) {
  const auto file_bytes = static_cast<int64_t>(fs::file_size(folder_->Path("model.safetensors")));
  for (const std::optional<DType> quantization :
       {std::optional<DType>(), std::optional(DType::kQ8_0), std::optional(DType::kQ4K)}) {
    const auto backend = *MakeCpuBackend({.num_threads = 2});
    const auto model =
        *Transformer::Load(folder_->path(), backend.get(), {.quantized = quantization});
    const auto cache = *PagedKvCache::Create(backend.get(), model->kv_layout(16), 1);
    EXPECT_EQ(model->num_unpacked(), 2 * 4 + 1);
    Logits(*model, *cache, 0);
    EXPECT_EQ(model->num_unpacked(), 1);  // the head
    const std::vector<float> first = Logits(*model, *cache, 3);
    EXPECT_EQ(model->num_unpacked(), 0);
    EXPECT_LE(ResidentBytes(folder_->path()), file_bytes / 8);
    const std::vector<float> second = Logits(*model, *cache, 3);
    ASSERT_EQ(first.size(), second.size());
    EXPECT_EQ(std::memcmp(first.data(), second.data(), first.size() * sizeof(float)), 0);

    const auto other =
        *Transformer::Load(folder_->path(), backend.get(), {.quantized = quantization});
    const std::vector<float> alone = Logits(*other, *cache, 3);
    EXPECT_EQ(other->num_unpacked(), 0);
    ASSERT_EQ(first.size(), alone.size());
    EXPECT_EQ(std::memcmp(first.data(), alone.data(), first.size() * sizeof(float)), 0);
  }
}

TEST_F(FirstPassTest, DoesNotChangeTheOutputOfAnEngine) {
  for (const Quantization quantize :
       {Quantization::kNone, Quantization::kQ8_0, Quantization::kQ4K}) {
    EngineOptions options{.target = folder_->path(),
                          .draft = folder_->path(),
                          .drafter = DrafterKind::kModel,
                          .quantize = quantize};
    options.kv_memory_bytes = 1 << 24;
    options.prefix_cache = false;
    const auto engine = *Engine::Create(options);
    Request request{.prompt_ids = {5, 100, 17}, .max_tokens = 8, .seed = 3, .ignore_eos = true};
    request.sampling.temperature = 0.8f;
    request.logprobs.num_top = 2;
    request.draft_tokens = 0;
    const Completion first = *engine->Generate(request);
    request.verifier = AcceptanceRule::kExactMatch;
    request.draft_tokens = 2;  // the first passes of the draft
    const Completion second = *engine->Generate(request);
    EXPECT_EQ(first.token_ids, second.token_ids) << NameOf(quantize);
    ASSERT_EQ(first.logprobs.size(), second.logprobs.size());
    for (size_t i = 0; i < first.logprobs.size(); ++i) {
      EXPECT_EQ(first.logprobs[i].logprob, second.logprobs[i].logprob) << NameOf(quantize);
    }
  }
}

// Row 90 of the bug catalogue. A model that does not fit is refused, not killed.
TEST_F(FirstPassTest, RefusesModelsThatDoNotFitInMemory) {
  EngineOptions options{.target = folder_->path(), .draft = folder_->path()};
  int64_t to_pack = 0;
  {
    const auto pair = Runtime::Load(options);
    ASSERT_TRUE(pair.ok()) << pair.status();
    to_pack = static_cast<int64_t>(pair->target->bytes_read_per_pass() +
                                   pair->draft->bytes_read_per_pass());
  }
  const auto refused = Runtime::Load(options, to_pack - 1).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), testing::HasSubstr(absl::StrCat(to_pack, " bytes")));
  EXPECT_THAT(std::string(refused.message()),
              testing::HasSubstr(absl::StrCat(to_pack - 1, " are available")));

  const auto cache_bytes = [](const Runtime& pair) {
    return static_cast<int64_t>(pair.target_cache->num_pages()) *
           (pair.target_cache->layout().page_bytes() + pair.draft_cache->layout().page_bytes());
  };
  constexpr int64_t kLeft = 1 << 20;
  const auto snug = Runtime::Load(options, to_pack + kLeft);
  ASSERT_TRUE(snug.ok()) << snug.status();
  EXPECT_GT(cache_bytes(*snug), kLeft / 8);
  EXPECT_LE(cache_bytes(*snug), kLeft / 4);

  options.kv_memory_bytes = kLeft;
  const auto no_room = Runtime::Load(options, to_pack + kLeft / 2).status();
  EXPECT_THAT(std::string(no_room.message()),
              testing::AllOf(testing::StartsWith("kv_memory: "),
                             testing::HasSubstr("bytes of key-value caches")));
  EXPECT_TRUE(Runtime::Load(options, to_pack + kLeft).ok());
  EXPECT_EQ(Runtime::Load(options, to_pack + kLeft / 2).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Runtime::Load(options, std::nullopt).ok());
}

TEST_F(FirstPassTest, CanRunAtLoad) {
  for (const bool warm_up : {false, true}) {
    EngineOptions options{.target = folder_->path(), .draft = folder_->path()};
    options.kv_memory_bytes = 1 << 24;
    options.warm_up = warm_up;
    const auto pair = Runtime::Load(options);
    ASSERT_TRUE(pair.ok()) << pair.status();
    EXPECT_EQ(pair->target->num_unpacked() == 0, warm_up);
    EXPECT_EQ(pair->draft->num_unpacked() == 0, warm_up);
    EXPECT_EQ(pair->target_cache->num_free_pages(), pair->target_cache->num_pages());
  }
}

}  // namespace
}  // namespace tandem
