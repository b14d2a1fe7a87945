// Whole models on the device's backend, compared with the reference's logits (tests/data/README.md)
// and with themselves: the other rows of a pass do not change a row's bits.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/mapped_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/cuda_devices.h"
#include "kvcache/paged_kv_cache.h"
#include "model/sampling.h"
#include "model/transformer.h"
#include "tandem/engine.h"
#include "tandem/json_value.h"
#include "tests/folder_testing.h"
#include "tests/golden_file.h"
#include "tests/model_testing.h"
#include "verify/acceptance.h"

namespace tandem {
namespace {

struct Case {
  std::string model;
  // The same as in tests/golden_models_test.cc if inputs are not rounded. With bf16 weights, each
  // of the 9 products between a token and its logits rounds its inputs by up to 2^-9 of their size.
  // Logits reach 14, so errors that add like noise give 14 * 2^-9 * 3 = 0.08, and 4 times that is
  // rare. Weights of f16 are rounded by as much: 1.4 times that.
  float tolerance = 2e-4f;
  KvDType kv_dtype = KvDType::kF32;
  int device = 0;  // simulated device 1 has Ampere's tensor cores
  bool keeps_f16 = false;
};

class DeviceModel : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    auto made = MakeCudaBackend(GetParam().device, CudaOptions{.keeps_f16 = GetParam().keeps_f16});
    if (!made.ok()) GTEST_SKIP() << made.status().message();
    backend_ = *std::move(made);
    const std::string folder = GoldenModelPath(GetParam().model);
    golden_ = ReadGolden(folder);
    auto model = Transformer::Load(folder, backend_.get());
    ASSERT_TRUE(model.ok()) << model.status().message();
    model_ = *std::move(model);
  }

  // Feeds the first `count` tokens in passes of `chunk` and returns the logits of every row.
  std::vector<float> Feed(int count, size_t chunk, int page_size) {
    auto cache = PagedKvCache::Create(
        backend_.get(), model_->kv_layout(page_size, GetParam().kv_dtype), 128 / page_size);
    KvSequence kv = (*cache)->NewSequence();
    return tandem::Feed(*model_, &kv, absl::MakeConstSpan(golden_.input_ids).first(count), chunk);
  }

  std::unique_ptr<Backend> backend_;
  Golden golden_;
  std::unique_ptr<Transformer> model_;
};

TEST_P(DeviceModel, LogitsEqualTheReference) {
  constexpr int kTokens = 13;
  const std::vector<float> logits = Feed(kTokens, kTokens, 16);
  const auto end = golden_.logits.begin() + kTokens * model_->vocab_size();
  EXPECT_LE(LargestDifference(logits, {golden_.logits.begin(), end}), GetParam().tolerance);
}

TEST_P(DeviceModel, RowsHaveTheSameBitsInEveryChunking) {
  constexpr int kTokens = 7;
  const std::vector<float> want = Feed(kTokens, 1, 16);
  for (const auto& [chunk, page_size] : {std::pair{3, 1}, {7, 4}}) {
    const std::vector<float> got = Feed(kTokens, chunk, page_size);
    ASSERT_EQ(got.size(), want.size());
    EXPECT_EQ(std::memcmp(got.data(), want.data(), want.size() * sizeof(float)), 0)
        << "chunk " << chunk;
  }
}

// Rows of a prompt's chunks, with few and with many rows, and verified rows of a round have the
// bits of tokens that are decoded one by one, also beyond one tile of attention.
TEST_P(DeviceModel, VerifiedRowsHaveTheBitsOfDecodedOnes) {
  const int tokens = std::min(34, static_cast<int>(golden_.input_ids.size()));
  const std::vector<float> want = Feed(tokens, 1, 16);
  for (const size_t chunk : {9, 33}) {
    const std::vector<float> got = Feed(tokens, chunk, 16);
    ASSERT_EQ(got.size(), want.size());
    EXPECT_EQ(std::memcmp(got.data(), want.data(), want.size() * sizeof(float)), 0)
        << "chunk " << chunk;
  }
}

// Rows of which only the argmax is requested stay on the device, whatever their neighbours request,
// in passes that are enqueued, recorded and replayed.
TEST_P(DeviceModel, ReturnsTheArgMaxOfRowsThatStayOnTheDevice) {
  auto cache = PagedKvCache::Create(backend_.get(), model_->kv_layout(16, GetParam().kv_dtype), 8);
  constexpr int kRows = 2;
  const auto tokens = absl::MakeConstSpan(golden_.input_ids);
  for (int pass = 0; pass < 4; ++pass) {
    std::vector<std::vector<float>> rows[2];
    for (const LogitsToHost to_host : {LogitsToHost::kWhole, LogitsToHost::kOnlyArgMax}) {
      KvSequence one = (*cache)->NewSequence();
      KvSequence other = (*cache)->NewSequence();
      const ForwardRequest requests[] = {
          {.tokens = tokens.subspan(pass, 3), .kv = &one, .num_logits = kRows, .to_host = to_host},
          {.tokens = tokens.subspan(3 + pass, 3), .kv = &other}};
      const auto logits = model_->Forward(requests);
      ASSERT_TRUE(logits.ok()) << logits.status().message();
      for (int r = 0; r < kRows + 1; ++r) {
        const float* row = static_cast<const float*>(logits->data) + r * logits->stride;
        rows[to_host == LogitsToHost::kOnlyArgMax ? 1 : 0].emplace_back(row, row + logits->cols);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      EXPECT_EQ(ArgMax(rows[1][r]), ArgMax(rows[0][r])) << pass;
      EXPECT_NE(rows[1][r], rows[0][r]);
    }
    EXPECT_EQ(std::memcmp(rows[1][kRows].data(), rows[0][kRows].data(),
                          rows[0][kRows].size() * sizeof(float)),
              0);
  }
}

// Files in block formats, compared with exact arithmetic (tests/gguf_models_test.cc) and with
// themselves.
class DeviceGguf : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto made = MakeCudaBackend(0);
    if (!made.ok()) GTEST_SKIP() << made.status().message();
    backend_ = *std::move(made);
    reference_ = SortedJson::parse(*ReadFile(GoldenGgufPath("llama-small.json")));
    auto model = Transformer::Load(GoldenGgufPath(file().at("file")), backend_.get());
    ASSERT_TRUE(model.ok()) << model.status().message();
    model_ = *std::move(model);
    tokens_ = reference_.at("prompts")[0].get<std::vector<TokenId>>();
  }
  const SortedJson& file() const { return reference_.at("files").at(GetParam()); }
  // Returns the logits of every token, fed in passes of `chunk`.
  std::vector<std::vector<float>> Feed(size_t chunk) {
    const auto cache = *PagedKvCache::Create(backend_.get(), model_->kv_layout(16), 4);
    KvSequence kv = cache->NewSequence();
    std::vector<std::vector<float>> logits;
    for (size_t begin = 0; begin < tokens_.size(); begin += chunk) {
      const auto part = absl::MakeConstSpan(tokens_).subspan(begin, chunk);
      const ForwardRequest request{
          .tokens = part, .kv = &kv, .num_logits = static_cast<int>(part.size())};
      const MatrixView rows = *model_->Forward({&request, 1});
      for (int r = 0; r < rows.rows; ++r) {
        const float* const row = static_cast<const float*>(rows.data) + r * rows.stride;
        logits.emplace_back(row, row + rows.cols);
      }
    }
    return logits;
  }

  std::unique_ptr<Backend> backend_;
  SortedJson reference_;
  std::unique_ptr<Transformer> model_;
  std::vector<TokenId> tokens_;
};

TEST_P(DeviceGguf, LogProbabilitiesEqualTheReference) {
  const std::vector<std::vector<float>> logits = Feed(tokens_.size());
  const SortedJson& top = file().at("exact")[0].at("top");
  ASSERT_EQ(logits.size(), top.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    const double largest = *std::max_element(logits[i].begin(), logits[i].end());
    double sum = 0.0;
    for (const float logit : logits[i]) sum += std::exp(logit - largest);
    for (const SortedJson& wanted : top[i]) {
      EXPECT_NEAR(logits[i][wanted[0].get<int>()] - largest - std::log(sum),
                  wanted[1].get<double>(), file().at("allowed").at("max").get<double>());
    }
  }
}

TEST_P(DeviceGguf, RowsHaveTheSameBitsInEveryChunking) { EXPECT_EQ(Feed(1), Feed(tokens_.size())); }

INSTANTIATE_TEST_SUITE_P(All, DeviceGguf, testing::Values("Q8_0", "Q4_K_M"));

// Whole engines with golden models on the device.
class DeviceEngine : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto backend = MakeCudaBackend(0); !backend.ok()) {
      GTEST_SKIP() << backend.status().message();
    }
  }
  static std::unique_ptr<Engine> Make(const std::string& target, const std::string& draft,
                                      const std::string& device = "cuda:0",
                                      KvCacheType kv_cache = KvCacheType::kF32) {
    EngineOptions options;
    options.target = GoldenModelPath(target);
    options.draft = GoldenModelPath(draft);
    options.drafter = DrafterKind::kModel;  // which runs on the device
    options.device = device;
    options.kv_cache = kv_cache;
    auto engine = Engine::Create(options);
    EXPECT_TRUE(engine.ok()) << engine.status();
    TANDEM_CHECK(engine.ok());
    return *std::move(engine);
  }
};

// Greedy text equals that of the reference, which does not round, with drafts of any length and
// without drafts.
TEST_F(DeviceEngine, GreedyTextEqualsTheReference) {
  const Golden golden = ReadGolden(GoldenModelPath("mistral-full"));
  for (const int draft_tokens : {0, 1, 4}) {
    const auto engine = Make("mistral-full", "mistral-noisy");
    const auto got =
        engine->Generate({.prompt_ids = {golden.input_ids.begin(), golden.input_ids.begin() + 8},
                          .max_tokens = 10,
                          .sampling = {.temperature = 0.0f},
                          .ignore_eos = true,
                          .draft_tokens = draft_tokens});
    ASSERT_TRUE(got.ok()) << got.status().message();
    EXPECT_TRUE(std::equal(got->token_ids.begin(), got->token_ids.end(), golden.greedy_ids.begin()))
        << draft_tokens;
    EXPECT_EQ(got->token_ids.size(), 10u);
    EXPECT_EQ(got->stats.proposed > 0, draft_tokens > 0);
  }
}

// Sampled tokens are the same whether rows are copied to the host, as log-probabilities require, or
// sampled on the device: under every rule, with drafts of a model and without drafts.
TEST_F(DeviceEngine, SampledTextEqualsThatOfRowsOnTheHost) {
  const Golden golden = ReadGolden(GoldenModelPath("mistral-full"));
  const auto engine = Make("mistral-full", "mistral-noisy");
  for (const AcceptanceRule rule : kAllRules) {
    for (const int draft_tokens : {0, 3}) {
      if (draft_tokens == 0 && rule != kAllRules[0]) continue;
      std::vector<TokenId> ids[2];
      for (const bool on_host : {false, true}) {
        Request request{
            .prompt_ids = {golden.input_ids.begin(), golden.input_ids.begin() + 8},
            .max_tokens = 6,
            .sampling = {.temperature = 0.8f, .top_k = 60, .top_p = 0.9f, .min_p = 0.01f},
            .seed = 7,
            .ignore_eos = true,
            .draft_tokens = draft_tokens};
        request.verifier = rule;
        if (on_host) request.logprobs.num_top = 0;
        const auto got = engine->Generate(request);
        ASSERT_TRUE(got.ok()) << got.status().message();
        EXPECT_EQ(got->stats.proposed > 0, draft_tokens > 0);
        ids[on_host ? 1 : 0] = got->token_ids;
      }
      EXPECT_EQ(ids[0], ids[1]) << NameOf(rule) << " " << draft_tokens;
    }
  }
}

// The draft's passes read the drawn tokens, so a draft that is the target is always accepted.
TEST_F(DeviceEngine, ADraftThatIsTheTargetIsFullyAccepted) {
  const auto engine = Make("llama-bf16", "llama-bf16");
  for (const float temperature : {0.0f, 0.9f}) {
    const auto got = engine->Generate({.prompt_ids = {5, 4, 3},
                                       .max_tokens = 9,
                                       .sampling = {.temperature = temperature},
                                       .seed = 3,
                                       .ignore_eos = true,
                                       .draft_tokens = 4,
                                       .verifier = AcceptanceRule::kToken});
    ASSERT_TRUE(got.ok()) << got.status().message();
    EXPECT_GE(got->stats.proposed, 6);
    EXPECT_EQ(got->stats.accepted, got->stats.proposed) << temperature;
  }
}

// Weights and caches in bf16, capped scores, and drafts that are mostly rejected.
TEST_F(DeviceEngine, Bf16TextIsTheSameWithoutDrafts) {
  for (const std::string device : {"cuda:0", "cuda:1"}) {
    if (device == "cuda:1" && !MakeCudaBackend(1).ok()) continue;
    const auto engine = Make("gemma2", "cohere2", device, KvCacheType::kBF16);
    for (const float temperature : {0.0f, 0.8f}) {
      std::vector<TokenId> plain;
      for (const int draft_tokens : {0, 4}) {
        const auto got = engine->Generate({.prompt_ids = {9, 8, 7, 6, 5, 4, 3, 11, 12, 13},
                                           .max_tokens = 12,
                                           .sampling = {.temperature = temperature},
                                           .seed = 3,
                                           .ignore_eos = true,
                                           .draft_tokens = draft_tokens,
                                           .verifier = AcceptanceRule::kExactMatch});
        ASSERT_TRUE(got.ok()) << got.status().message();
        EXPECT_EQ(got->stats.proposed > 0, draft_tokens > 0);
        if (draft_tokens == 0) plain = got->token_ids;
        EXPECT_EQ(got->token_ids, plain) << device << " " << temperature;
      }
    }
  }
}

TEST_F(DeviceEngine, UsesTheFileOfChoices) {
  EngineOptions options{.target = GoldenModelPath("gemma2"), .device = "cuda:0"};
  const TestFolder folder;
  options.cuda_tune = folder.Write("choices.json", "{}");
  const absl::Status broken = Engine::Create(options).status();
  EXPECT_EQ(broken.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(broken.message()),
              ::testing::HasSubstr(absl::StrCat(options.cuda_tune, ": measured_on")));
  options.cuda_tune = "";
  EXPECT_EQ(Engine::Create(options).status().message(),
            "cuda_tune: must be off, load or a file, got \"\"");
}

INSTANTIATE_TEST_SUITE_P(All, DeviceModel,
                         testing::Values(Case{"mistral-window"}, Case{"qwen2-fp16", 0.45f},
                                         Case{.model = "qwen2-fp16", .keeps_f16 = true},
                                         Case{"qwen3-norm"}, Case{"llama-bf16", 0.32f},
                                         Case{"llama-bf16", 0.32f, KvDType::kBF16},
                                         Case{"llama-bf16", 0.32f, KvDType::kInt8},
                                         Case{"llama-bf16", 0.32f, KvDType::kBF16, 1},
                                         Case{"gemma2", 0.32f, KvDType::kBF16},
                                         Case{"gemma2", 0.32f, KvDType::kBF16, 1}),
                         [](const auto& info) {
                           std::string name =
                               absl::StrCat(info.param.model, "_", NameOf(info.param.kv_dtype),
                                            info.param.device == 0 ? "" : "_ampere",
                                            info.param.keeps_f16 ? "_kept" : "");
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace tandem
