// The states that a target's passes leave for draft heads.
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "engine/engine_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/blocks.h"
#include "model/transformer.h"

namespace tandem {
namespace {

class TargetStates : public testing::Test {
 protected:
  void SetUp() override {
    backend_ = *MakeCpuBackend({.num_threads = 1});
    const std::string path = ShippedModelPath("storyteller-1m");
    model_ = *Transformer::Load(path, backend_.get());
    cache_ = *PagedKvCache::Create(backend_.get(), model_->kv_layout(/*page_size=*/16), 64);
    weights_ = *Weights::Open(path);
    std::iota(tokens_.begin(), tokens_.end(), 100);
  }

  ConstMatrixView Embedding() const {
    return *weights_->Get("model.embed_tokens.weight", {model_->vocab_size(), hidden()});
  }
  int hidden() const { return model_->config().hidden_size; }

  // Returns the states of all tokens, read in chunks.
  std::vector<float> StatesIn(size_t chunk_tokens) {
    KvSequence kv = cache_->NewSequence();
    std::vector<float> states;
    const absl::Span<const TokenId> tokens = tokens_;
    for (size_t i = 0; i < tokens.size(); i += chunk_tokens) {
      const ForwardRequest pass{
          .tokens = tokens.subspan(i, chunk_tokens), .kv = &kv, .num_logits = 0};
      EXPECT_TRUE(model_->Forward({&pass, 1}).ok());
      const auto* data = static_cast<const float*>(model_->states().data);
      states.insert(states.end(), data, data + pass.tokens.size() * model_->state_size());
    }
    return states;
  }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Transformer> model_;
  std::unique_ptr<PagedKvCache> cache_;
  std::unique_ptr<Weights> weights_;
  std::vector<TokenId> tokens_ = std::vector<TokenId>(40);
};

TEST_F(TargetStates, AreEmptyUnlessRequested) {
  EXPECT_EQ(model_->state_size(), 0);
  EXPECT_THAT(StatesIn(40), testing::IsEmpty());
}

TEST_F(TargetStates, LayerZeroIsTheEmbedding) {
  model_->KeepStates({0});
  const std::vector<float> states = StatesIn(40);
  const ConstMatrixView embedding = Embedding();
  for (size_t i = 0; i < tokens_.size(); ++i) {
    std::vector<float> row(hidden());
    WidenRow(static_cast<const std::byte*>(embedding.data) +
                 tokens_[i] * RowBytes(embedding.dtype, embedding.stride),
             embedding.dtype, embedding.cols, row.data());
    ASSERT_EQ(std::memcmp(row.data(), &states[i * hidden()], row.size() * sizeof(float)), 0) << i;
  }
}

// This model's output head is its embedding.
TEST_F(TargetStates, TheLastLayerIsTheInputOfTheHead) {
  model_->KeepStates({model_->config().num_layers});
  KvSequence kv = cache_->NewSequence();
  const ForwardRequest pass{.tokens = tokens_, .kv = &kv, .num_logits = 40};
  const MatrixView logits = *model_->Forward({&pass, 1});
  const PackedWeight head = *backend_->Pack({{.matrix = Embedding()}}, PartOrder::kConcatenated);
  std::vector<float> computed(size_t{40} * model_->vocab_size());
  backend_->MatMul(model_->states(), head,
                   {computed.data(), DType::kF32, 40, model_->vocab_size(), model_->vocab_size()});
  EXPECT_EQ(std::memcmp(computed.data(), logits.data, computed.size() * sizeof(float)), 0);
}

// Layers can be in any order, each in its own columns, and a row does not depend on the other rows
// of its pass.
TEST_F(TargetStates, AreTheSameInEveryChunking) {
  const int last = model_->config().num_layers;
  model_->KeepStates({last, 1, 0});
  const std::vector<float> whole = StatesIn(40);
  for (const size_t chunk_tokens : {1, 7, 16}) {
    const std::vector<float> chunked = StatesIn(chunk_tokens);
    ASSERT_EQ(chunked.size(), whole.size());
    EXPECT_EQ(std::memcmp(chunked.data(), whole.data(), whole.size() * sizeof(float)), 0)
        << chunk_tokens;
  }
  int column = 0;
  for (const int layer : {last, 1, 0}) {
    model_->KeepStates({layer});
    const std::vector<float> alone = StatesIn(40);
    for (size_t i = 0; i < tokens_.size(); ++i) {
      ASSERT_EQ(std::memcmp(&whole[i * 3 * hidden() + column], &alone[i * hidden()],
                            hidden() * sizeof(float)),
                0);
    }
    column += hidden();
  }
}

}  // namespace
}  // namespace tandem
