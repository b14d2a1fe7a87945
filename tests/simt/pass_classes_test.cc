// Passes that are padded to classes: they are replayed while the load changes, and have the bits of
// passes without padding.
#include <cstring>
#include <memory>
#include <vector>

#include "base/check.h"
#include "engine/record_passes.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kvcache/paged_kv_cache.h"
#include "model/pass_message.h"
#include "model/transformer.h"
#include "tandem/engine.h"
#include "tests/golden_file.h"
#include "tests/simt/launches.h"

namespace tandem {
namespace {

TEST(PassClasses, AreTheSmallestThatHoldTheNumber) {
  int last = 0;
  for (int count = 0; count <= 1000; ++count) {
    const int rows = PassClassOf(count);
    EXPECT_GE(rows, count);
    EXPECT_LT(rows, count < 8 ? count + 1 : count <= 64 ? 2 * count : count + 64);
    EXPECT_EQ(PassClassOf(rows), rows);
    EXPECT_TRUE(rows <= 8 || rows == 16 || rows == 32 || rows % 64 == 0) << rows;
    EXPECT_GE(rows, last);
    last = rows;
  }
}

TEST(PassClasses, TablesGrowByPowersOfTwo) {
  const PassSize size{.batch = 9, .rows = 33, .logit_rows = 10, .pages = 17};
  const PassTables padded = size.Tables(/*pads=*/true, /*page_size=*/16);
  EXPECT_EQ(padded.batch, 16);
  EXPECT_EQ(padded.rows, 64);
  EXPECT_EQ(padded.logit_rows, 16);
  EXPECT_EQ(padded.max_pages, 32);
  EXPECT_EQ(PassSize{.pages = 1}.Tables(true, 4).max_pages, 64);
  const PassTables exact = size.Tables(/*pads=*/false, /*page_size=*/16);
  EXPECT_EQ(exact.batch, 9);
  EXPECT_EQ(exact.rows, 33);
  EXPECT_EQ(exact.logit_rows, 10);
  EXPECT_EQ(exact.max_pages, 32);
  EXPECT_EQ(PassSize{.pages = 1}.Tables(false, 4).max_pages, 1);
}

class PaddedPasses : public testing::TestWithParam<KvDType> {
 protected:
  void SetUp() override {
    backend_ = *MakeCudaBackend(0);
    model_ = *Transformer::Load(GoldenModelPath("llama-bf16"), backend_.get());
    cache_ = *PagedKvCache::Create(backend_.get(), model_->kv_layout(/*page_size=*/4, GetParam()),
                                   /*num_pages=*/96);
  }

  std::vector<TokenId> Tokens(int sequence, int count) const {
    std::vector<TokenId> tokens;
    for (int i = 0; i < count; ++i) {
      tokens.push_back((sequence * 31 + i * 7 + 3) % model_->vocab_size());
    }
    return tokens;
  }
  // Returns the logits of a pass.
  std::vector<float> Pass(const std::vector<ForwardRequest>& requests) {
    const auto logits = model_->Forward(requests);
    TANDEM_CHECK(logits.ok());
    const auto* const data = static_cast<const float*>(logits->data);
    return {data, data + int64_t{logits->rows} * logits->cols};
  }
  // The keys and values of all layers.
  std::vector<std::byte> Cached() {
    std::vector<std::byte> all;
    const KvLayout& layout = cache_->layout();
    for (int layer = 0; layer < layout.num_layers; ++layer) {
      const PagedKvView kv = cache_->LayerView(layer);
      for (const void* part : {kv.keys, kv.values}) {
        std::vector<std::byte> block(layout.piece_words() * sizeof(uint32_t));
        for (int64_t page = 0; page < cache_->num_pages(); ++page) {
          for (int head = 0; head < layout.num_kv_heads; ++head) {
            backend_->Download(static_cast<const uint32_t*>(part) + kv.BlockOf(page, head),
                               absl::MakeSpan(block));
            all.insert(all.end(), block.begin(), block.end());
          }
        }
      }
    }
    return all;
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Transformer> model_;
  std::unique_ptr<PagedKvCache> cache_;
};
INSTANTIATE_TEST_SUITE_P(Caches, PaddedPasses, testing::Values(KvDType::kF32, KvDType::kBF16),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

// Nine sequences are padded to 16, and their 15 rows, of which 12 are wanted, to 16. Then each
// continues alone, without padding, with the keys and values of the padded pass.
TEST_P(PaddedPasses, HaveTheBitsOfPassesWithoutPadding) {
  constexpr int kSequences = 9;
  const int counts[kSequences] = {1, 3, 1, 2, 1, 4, 1, 1, 1};
  std::vector<std::vector<TokenId>> tokens;
  std::vector<KvSequence> together, alone;
  std::vector<ForwardRequest> requests;
  for (int s = 0; s < kSequences; ++s) {
    tokens.push_back(Tokens(s, counts[s] + 1));
    together.push_back(cache_->NewSequence());
    alone.push_back(cache_->NewSequence());
  }
  for (int s = 0; s < kSequences; ++s) {
    requests.push_back({.tokens = absl::MakeConstSpan(tokens[s]).first(counts[s]),
                        .kv = &together[s],
                        .num_logits = std::min(counts[s], 2)});
  }
  const std::vector<float> padded = Pass(requests);
  std::vector<float> exact, after_padded, after_exact;
  for (int s = 0; s < kSequences; ++s) {
    requests[s].kv = &alone[s];
    const std::vector<float> rows = Pass({requests[s]});
    exact.insert(exact.end(), rows.begin(), rows.end());
    const auto last = absl::MakeConstSpan(tokens[s]).last(1);
    for (const auto& [kv, after] :
         {std::pair{&together[s], &after_padded}, {&alone[s], &after_exact}}) {
      const std::vector<float> next = Pass({{.tokens = last, .kv = kv}});
      after->insert(after->end(), next.begin(), next.end());
    }
  }
  ASSERT_EQ(padded.size(), exact.size());
  EXPECT_EQ(std::memcmp(padded.data(), exact.data(), exact.size() * sizeof(float)), 0);
  ASSERT_EQ(after_padded.size(), after_exact.size());
  EXPECT_EQ(
      std::memcmp(after_padded.data(), after_exact.data(), after_exact.size() * sizeof(float)), 0);
}

// Sequences come and go between 9 and 16: one class, one recording.
TEST_P(PaddedPasses, AreReplayedWhileTheLoadChanges) {
  std::vector<KvSequence> sequences;
  for (int s = 0; s < 16; ++s) sequences.push_back(cache_->NewSequence());
  const std::vector<TokenId> token = Tokens(0, 1);
  const simt::GraphCounts before = simt::Graphs();
  constexpr int kPasses = 6;
  for (int pass = 0; pass < kPasses; ++pass) {
    const int batch = 9 + pass * 5 % 8;
    std::vector<ForwardRequest> requests;
    for (int s = 0; s < batch; ++s) requests.push_back({.tokens = token, .kv = &sequences[s]});
    EXPECT_EQ(Pass(requests).size(), static_cast<size_t>(batch) * model_->vocab_size());
  }
  EXPECT_EQ(simt::Graphs().recorded - before.recorded, 1);
  EXPECT_EQ(simt::Graphs().replayed - before.replayed, kPasses - 1);
}

TEST_P(PaddedPasses, RecordsAPassThatWritesNothing) {
  const std::vector<TokenId> tokens = Tokens(1, 3);
  KvSequence kv = cache_->NewSequence();
  const std::vector<float> want = Pass({{.tokens = tokens, .kv = &kv, .num_logits = 3}});
  const std::vector<std::byte> cached = Cached();
  model_ = *Transformer::Load(GoldenModelPath("llama-bf16"), backend_.get());
  const simt::GraphCounts before = simt::Graphs();
  const PassSize size{.batch = 1, .rows = 3, .logit_rows = 3, .pages = 1};
  ASSERT_TRUE(model_->RecordPass(size, /*reads_own_states=*/false, cache_.get()).ok());
  EXPECT_EQ(simt::Graphs().recorded - before.recorded, 1);
  EXPECT_EQ(Cached(), cached);
  KvSequence other = cache_->NewSequence();
  EXPECT_EQ(Pass({{.tokens = tokens, .kv = &other, .num_logits = 3}}), want);
  EXPECT_EQ(simt::Graphs().recorded - before.recorded, 1);
  EXPECT_EQ(simt::Graphs().replayed - before.replayed, 2);
}

EngineOptions SmallEngine(bool warms_up) {
  EngineOptions options;
  options.target = GoldenModelPath("llama-bf16");
  options.draft = GoldenModelPath("llama-bf16");
  options.device = "cuda:0";
  options.chunk_tokens = 16;
  options.max_batch = 2;
  options.draft_tokens = 2;
  options.context = 64;
  options.warm_up = warms_up;
  return options;
}

// After a warm-up, the passes of a request are replayed from the first one on.
TEST(RecordedPasses, ServeTheFirstRequest) {
  int recorded[2];
  std::vector<TokenId> texts[2];
  for (const bool warms_up : {false, true}) {
    auto engine = Engine::Create(SmallEngine(warms_up));
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    const int before = simt::Graphs().recorded;
    const auto got = (*engine)->Generate({.prompt_ids = {9, 8, 7},
                                          .max_tokens = 10,
                                          .sampling = {.temperature = 0.0f},
                                          .ignore_eos = true,
                                          .draft_tokens = 2});
    ASSERT_TRUE(got.ok()) << got.status().message();
    recorded[warms_up] = simt::Graphs().recorded - before;
    texts[warms_up] = got->token_ids;
  }
  EXPECT_EQ(texts[1], texts[0]);
  EXPECT_GT(recorded[0], 0);
  EXPECT_LT(recorded[1], recorded[0]);
}

TEST(RecordedPasses, AreFewAndDifferent) {
  for (const int max_batch : {1, 2, 64, 500}) {
    for (const int draft_tokens : {kAutoDraftTokens, 0, 2, 32}) {
      EngineOptions options = SmallEngine(/*warms_up=*/false);
      options.max_batch = max_batch;
      options.draft_tokens = draft_tokens;
      const auto runtime = Runtime::Load(options);
      ASSERT_TRUE(runtime.ok()) << runtime.status().message();
      const std::vector<RecordedPass> passes = CommonPasses(options, *runtime);
      EXPECT_GE(passes.size(), 4u);
      EXPECT_LE(passes.size(), static_cast<size_t>(kMaxRecordedPasses));
      for (const RecordedPass& pass : passes) {
        EXPECT_LE(pass.size.batch, pass.size.rows);
        EXPECT_LE(pass.size.logit_rows, pass.size.rows);
        EXPECT_LE(pass.size.rows, 512);
      }
    }
  }
}

}  // namespace
}  // namespace tandem
