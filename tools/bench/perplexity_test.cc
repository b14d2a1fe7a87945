#include "tools/bench/perplexity.h"

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kvcache/kv_testing.h"

namespace tandem {
namespace {

constexpr int kVocab = 7;
constexpr int kContext = 64;

// Gives token (sum of the ids read) % vocab the weight 1 + number of tokens read, and every other
// token the weight 1, so that each prediction depends on exactly the tokens read.
class SummingModel : public LanguageModel {
 public:
  int vocab_size() const override { return kVocab; }
  int context_length() const override { return kContext; }
  absl::StatusOr<MatrixView> Forward(absl::Span<const ForwardRequest> requests) override {
    EXPECT_EQ(requests.size(), 1u);
    const ForwardRequest& request = requests[0];
    if (request.kv->length() == 0) read_.clear();
    EXPECT_EQ(static_cast<int>(read_.size()), request.kv->length());
    logits_.clear();
    const int count = static_cast<int>(request.tokens.size());
    EXPECT_TRUE(request.kv->Extend(count).ok());
    for (int i = 0; i < count; ++i) {
      read_.push_back(request.tokens[i]);
      if (i < count - request.num_logits) continue;
      for (int token = 0; token < kVocab; ++token) {
        logits_.push_back(static_cast<float>(std::log(WeightOf(token, read_))));
      }
    }
    return MatrixView{logits_.data(), DType::kF32, request.num_logits, kVocab, kVocab};
  }

  static double WeightOf(int token, const std::vector<TokenId>& read) {
    int sum = 0;
    for (const TokenId id : read) sum += id;
    return token == sum % kVocab ? 1.0 + static_cast<double>(read.size()) : 1.0;
  }

 private:
  std::vector<TokenId> read_;
  std::vector<float> logits_;
};

// The sum over i of the negative log-probability of token i after tokens [begins[i], i).
double Nats(const std::vector<TokenId>& tokens, const std::vector<int>& begins) {
  double nats = 0.0;
  for (size_t i = 1; i < tokens.size(); ++i) {
    const std::vector<TokenId> read(tokens.begin() + begins[i], tokens.begin() + i);
    nats -= std::log(SummingModel::WeightOf(tokens[i], read) /
                     (kVocab + static_cast<double>(read.size())));
  }
  return nats;
}

class PerplexityTest : public testing::Test {
 protected:
  void SetUp() override {
    auto cache = PagedKvCache::Create(
        nullptr, {.num_layers = 1, .num_kv_heads = 1, .head_dim = 2, .page_size = 4}, kContext);
    ASSERT_TRUE(cache.ok());
    cache_ = *std::move(cache);
  }
  Perplexity Measure(const PerplexityOptions& options) {
    Perplexity reported;
    const auto result = MeasurePerplexity(tokens_, options, &model_, cache_.get(),
                                          [&](const Perplexity& until_then) {
                                            reported = until_then;
                                            return absl::OkStatus();
                                          });
    EXPECT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(reported.tokens, result->tokens);
    EXPECT_EQ(reported.nats, result->nats);
    EXPECT_EQ(reported.end, result->end);
    EXPECT_EQ(cache_->num_free_pages(), kContext);
    return *result;
  }

  // Logits are rounded to f32: 12 tokens with an error below 4 * 2^-23 each, because the largest
  // logit is below 4.
  static constexpr double kTolerance = 12 * 4 * 1.2e-7;

  SummingModel model_;
  std::unique_ptr<PagedKvCache> cache_;
  const std::vector<TokenId> tokens_ = {3, 3, 6, 5, 1, 4, 0, 2, 6, 1, 1, 5};
};

TEST_F(PerplexityTest, OneWindowSumsTheLogprobsOfAllTokensButTheFirst) {
  for (const int chunk : {1, 2, 3, 5, 100}) {
    const Perplexity result = Measure({.window = 20, .stride = 10, .chunk_tokens = chunk});
    EXPECT_EQ(result.tokens, 11);
    EXPECT_NEAR(result.nats, Nats(tokens_, std::vector<int>(12, 0)), kTolerance) << chunk;
    EXPECT_DOUBLE_EQ(result.perplexity(), std::exp(result.nats / 11));
    EXPECT_DOUBLE_EQ(result.BitsPerByte(30), result.nats / std::log(2.0) / 30);
  }
}

TEST_F(PerplexityTest, EveryTokenIsPredictedInTheFirstWindowThatContainsIt) {
  for (const int chunk : {1, 2, 3, 100}) {
    // Windows [0, 5), [3, 8), [6, 11), [9, 12).
    const Perplexity result = Measure({.window = 5, .stride = 3, .chunk_tokens = chunk});
    EXPECT_EQ(result.tokens, 11);
    EXPECT_NEAR(result.nats, Nats(tokens_, {0, 0, 0, 0, 0, 3, 3, 3, 6, 6, 6, 9}), kTolerance)
        << chunk;
  }
}

TEST_F(PerplexityTest, WindowsWithoutOverlapPredictAllButTheirFirstToken) {
  for (const int chunk : {1, 3, 100}) {
    // Windows [0, 4), [4, 8), [8, 12).
    const Perplexity result = Measure({.window = 4, .stride = 4, .chunk_tokens = chunk});
    EXPECT_EQ(result.tokens, 9);
    double nats = 0.0;
    for (const int begin : {0, 4, 8}) {
      const std::vector<TokenId> part(tokens_.begin() + begin, tokens_.begin() + begin + 4);
      nats += Nats(part, std::vector<int>(4, 0));
    }
    EXPECT_NEAR(result.nats, nats, kTolerance) << chunk;
  }
  // The last window has one token, which nothing predicts.
  EXPECT_EQ(Measure({.window = 11, .stride = 11}).tokens, 10);
}

TEST_F(PerplexityTest, WindowThatEndsWithTheTextIsTheLast) {
  // Windows [0, 8) and [4, 12).
  const Perplexity result = Measure({.window = 8, .stride = 4});
  EXPECT_NEAR(result.nats, Nats(tokens_, {0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4}), kTolerance);
}

TEST_F(PerplexityTest, EndsWithTheErrorOfTheCallback) {
  // Windows [0, 5), [3, 8), ...: the first predicts tokens 1 to 4, in chunks of 2.
  Perplexity reported;
  const auto result = MeasurePerplexity(
      tokens_, {.window = 5, .stride = 3, .chunk_tokens = 2}, &model_, cache_.get(),
      [&](const Perplexity& until_then) {
        reported = until_then;
        return until_then.tokens < 4 ? absl::OkStatus() : absl::CancelledError("stopped");
      });
  EXPECT_EQ(result.status().message(), "stopped");
  EXPECT_EQ(reported.tokens, 4);
  EXPECT_EQ(reported.end, 5);
  EXPECT_NEAR(reported.nats, Nats({tokens_.begin(), tokens_.begin() + 5}, std::vector<int>(5, 0)),
              kTolerance);
  EXPECT_EQ(cache_->num_free_pages(), kContext);
}

TEST_F(PerplexityTest, OneTokenIsAnError) {
  const auto result = MeasurePerplexity({1}, {.window = 8, .stride = 4}, &model_, cache_.get(),
                                        [](const Perplexity&) { return absl::OkStatus(); });
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tandem
