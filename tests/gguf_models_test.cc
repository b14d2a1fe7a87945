// GGUF models compared with log-probabilities of exact arithmetic (tests/data/README.md).
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "engine/engine_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kvcache/paged_kv_cache.h"
#include "model/transformer.h"
#include "server/api/token_endpoints.h"
#include "tandem/chat_template.h"
#include "tandem/engine.h"
#include "tandem/json_value.h"
#include "tandem/tokenizer.h"
#include "tests/golden_file.h"
#include "tests/model_testing.h"

namespace tandem {
namespace {

using Json = SortedJson;

// Returns the natural log-probabilities of a row of logits.
std::vector<double> LogProbabilities(const float* logits, int vocab) {
  const float largest = *std::max_element(logits, logits + vocab);
  double sum = 0;
  for (int i = 0; i < vocab; ++i) sum += std::exp(double{logits[i]} - largest);
  std::vector<double> result(vocab);
  for (int i = 0; i < vocab; ++i) result[i] = double{logits[i]} - largest - std::log(sum);
  return result;
}

class GgufModel : public testing::TestWithParam<std::string> {};

TEST_P(GgufModel, LogProbabilitiesEqualTheReference) {
  const Json reference = Json::parse(*ReadFile(GoldenGgufPath("llama-small.json")));
  const Json& file = reference.at("files").at(GetParam());
  const auto backend = *MakeCpuBackend({.num_threads = 2, .compute = CpuCompute::kF32});
  const auto loaded = Transformer::Load(GoldenGgufPath(file.at("file")), backend.get());
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  Transformer& model = **loaded;
  const auto cache = *PagedKvCache::Create(backend.get(), model.kv_layout(16), 16);
  double sum = 0;
  double worst = 0;
  int num_compared = 0;
  for (size_t p = 0; p < reference.at("prompts").size(); ++p) {
    const auto tokens = reference.at("prompts")[p].get<std::vector<TokenId>>();
    KvSequence kv = cache->NewSequence();
    const std::vector<float> rows = Feed(model, &kv, tokens);
    const Json& top = file.at("exact")[p].at("top");
    ASSERT_EQ(top.size(), tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i) {
      const std::vector<double> found =
          LogProbabilities(rows.data() + i * model.vocab_size(), model.vocab_size());
      for (const Json& wanted : top[i]) {
        const double difference = std::abs(found[wanted[0].get<int>()] - wanted[1].get<double>());
        sum += difference;
        worst = std::max(worst, difference);
        ++num_compared;
      }
    }
  }
  EXPECT_EQ(num_compared, 20 * (5 + 17 + 36));
  EXPECT_LE(sum / num_compared, file.at("allowed").at("mean").get<double>());
  EXPECT_LE(worst, file.at("allowed").at("max").get<double>());
}

INSTANTIATE_TEST_SUITE_P(All, GgufModel, testing::Values("F32", "Q8_0", "Q4_K_M"));

TEST(GgufModels, SpeculationWritesThePlainText) {
  const EngineOptions options = DraftModelOptionsFor(GoldenGgufPath("llama-small.Q4_K_M.gguf"),
                                                     GoldenGgufPath("llama-small.Q8_0.gguf"));
  const auto engine = Engine::Create(options);
  ASSERT_TRUE(engine.ok()) << engine.status();
  for (const float temperature : {0.0f, 0.8f}) {
    Request request{.prompt_ids = {1, 20, 300, 41, 5}, .max_tokens = 40, .draft_tokens = 0};
    request.sampling.temperature = temperature;
    request.seed = 3;
    request.ignore_eos = true;
    const Completion plain = Generate(engine->get(), request);
    int accepted = 0;
    for (const int k : {1, 3, 8}) {
      request.draft_tokens = k;
      const Completion drafted = Generate(engine->get(), request);
      EXPECT_EQ(drafted.token_ids, plain.token_ids) << "k " << k << " T " << temperature;
      accepted += drafted.stats.accepted;
    }
    EXPECT_GT(accepted, 0);
  }
}

// A target's own weights in another format draft for it: floats, and blocks that are quantised to
// smaller ones.
TEST(GgufModels, DraftForThemselves) {
  for (const char* file : {"llama-small.F32.gguf", "llama-small.Q8_0.gguf"}) {
    for (const char* draft : {"self", "self:q5_1", "self:iq4_nl"}) {
      const auto engine = Engine::Create(DraftModelOptionsFor(GoldenGgufPath(file), draft));
      ASSERT_TRUE(engine.ok()) << engine.status();
      Request request{.prompt_ids = {1, 20, 300, 41, 5}, .max_tokens = 60, .draft_tokens = 0};
      request.sampling.temperature = 0.0f;
      request.ignore_eos = true;
      const Completion plain = Generate(engine->get(), request);
      request.draft_tokens = 3;
      const Completion drafted = Generate(engine->get(), request);
      EXPECT_EQ(drafted.token_ids, plain.token_ids) << file << " " << draft;
      EXPECT_GT(drafted.stats.accepted * 8, drafted.stats.proposed) << file << " " << draft;
    }
  }
}

TEST(GgufModels, ImpossibleSelfDraftsAreRefused) {
  const auto error_of = [](const std::string& draft, Quantization draft_quantize) {
    EngineOptions options = CpuOptionsFor(GoldenGgufPath("llama-small.F32.gguf"), draft);
    options.draft_quantize = draft_quantize;
    return std::string(Engine::Create(options).status().message());
  };
  EXPECT_THAT(error_of("self:q9", Quantization::kNone),
              testing::HasSubstr("\"q9\" is not one of none, q8_0"));
  EXPECT_THAT(error_of("self:none", Quantization::kNone), testing::HasSubstr("the target itself"));
  EXPECT_THAT(error_of("self:q4_0", Quantization::kQ8_0),
              testing::HasSubstr("allowed: auto and none, because self:q4_0 sets the format"));
}

// A draft's bits do not affect the output, so its blocks can be quantised to smaller ones.
TEST(GgufModels, DraftsOfBlocksAreQuantisedAgain) {
  const std::string target = GoldenGgufPath("llama-small.F32.gguf");
  const std::string draft = GoldenGgufPath("llama-small.Q8_0.gguf");
  const auto engine_with = [&](Quantization draft_quantize) {
    EngineOptions options = DraftModelOptionsFor(target, draft);
    options.draft_quantize = draft_quantize;
    return MakeEngine(options);
  };
  const auto plain = engine_with(Quantization::kNone);
  const auto small = engine_with(Quantization::kQ4_0);
  EXPECT_EQ(engine_with(Quantization::kAuto)->draft_info()->quantize,
            "none");  // because it is small
  EXPECT_EQ(small->draft_info()->quantize, "q4_0");
  EXPECT_LT(small->draft_info()->bytes_read_per_pass, plain->draft_info()->bytes_read_per_pass);
  Request request{.prompt_ids = {1, 20, 300, 41, 5}, .max_tokens = 60, .draft_tokens = 3};
  request.sampling.temperature = 0.0f;
  request.ignore_eos = true;
  const Completion drafted = Generate(small.get(), request);
  EXPECT_EQ(drafted.token_ids, Generate(plain.get(), request).token_ids);
  EXPECT_GT(drafted.stats.accepted * 8, drafted.stats.proposed);
}

TEST(GgufModels, BlocksAreNotQuantisedAgain) {
  const auto backend = *MakeCpuBackend({.num_threads = 1});
  const auto loaded = Transformer::Load(GoldenGgufPath("llama-small.Q8_0.gguf"), backend.get(),
                                        {.quantized = DType::kQ4_0});
  EXPECT_EQ(loaded.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(loaded.status().message()),
              testing::AllOf(testing::HasSubstr("quantize"), testing::HasSubstr("q8_0"),
                             testing::HasSubstr("llama-small.Q8_0.gguf")));
}

// Row 157 of the bug catalogue. A GGUF file has the information of tokenizer_config.json in its own
// keys.
TEST(GgufModels, DescribeTheirTokenizer) {
  const std::string path = GoldenGgufPath("llama-small.Q8_0.gguf");
  const auto tokenizer = Tokenizer::Load(path);
  const auto source = ChatTemplate::ReadSource(path);
  ASSERT_TRUE(tokenizer.ok() && source.ok());
  const auto text = TokenizerInfo(path, *source, **tokenizer, /*max_length=*/77);
  ASSERT_TRUE(text.ok()) << text.status();
  const Json info = Json::parse(*text);
  EXPECT_EQ(info["tokenizer_class"], "PreTrainedTokenizerFast");
  EXPECT_EQ(info["model_max_length"], 77);
  EXPECT_TRUE(info["pad_token"].is_null());
  ASSERT_TRUE(info["eos_token"].is_string());
  const auto ids =
      (*tokenizer)->Encode(info["eos_token"].get<std::string>(), SpecialTokens::kParse);
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_EQ(ids->size(), 1u);
  EXPECT_EQ(info["chat_template"].is_null(), source->jinja.empty());
}

}  // namespace
}  // namespace tandem
