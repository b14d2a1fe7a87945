// The number of kernels of a pass, and rows that outlive the pass that wrote them.
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/product_testing.h"
#include "kvcache/paged_kv_cache.h"
#include "model/transformer.h"
#include "tests/simt/runtime_calls.h"
#include "tools/checkpoints/random_model.h"

namespace tandem {
namespace {

// The launches of a pass of `rows` rows of one sequence.
int64_t LaunchesOf(absl::string_view shape_text, int rows) {
  const auto backend = *MakeCudaBackend(0);
  const RandomModelShape shape = *RandomModelShape::Parse(shape_text);
  const auto model =
      *Transformer::Load("random", shape.Config(), MakeRandomWeights(shape, 5), backend.get());
  const auto cache = *PagedKvCache::Create(backend.get(), model->kv_layout(16, KvDType::kBF16), 16);
  KvSequence kv = cache->NewSequence();
  const std::vector<TokenId> tokens(rows, 7);
  int64_t& launches = simt::RuntimeCalls::Get().counts["launch"];
  const int64_t before = launches;
  EXPECT_TRUE(model->Forward({{.tokens = tokens, .kv = &kv, .num_logits = 1}}).ok());
  return launches - before;
}

int64_t LaunchesOfALayer(absl::string_view shape, int rows) {
  return LaunchesOf(absl::StrCat(shape, ",layers=3"), rows) -
         LaunchesOf(absl::StrCat(shape, ",layers=2"), rows);
}

constexpr char kShape[] = "hidden=64,ffn=96,heads=4,kv_heads=2,head_dim=16,vocab=257,context=256";

// The products of queries, keys and values, the rotation, attention, its product, gate and up, and
// down: no kernel only rounds rows.
TEST(PassLaunches, ALayerHasOneForEachOperation) {
  for (const int rows : {1, 5, 16, 64}) {
    EXPECT_EQ(LaunchesOfALayer(kShape, rows), 6) << rows;
  }
}

// Embedding, rotary angles, the wanted rows, their rounding, and the head.
TEST(PassLaunches, FiveAreOutsideOfLayers) {
  for (const int rows : {1, 5, 16, 64}) {
    EXPECT_EQ(LaunchesOf(absl::StrCat(kShape, ",layers=2"), rows), 2 * 6 + 5) << rows;
  }
}

// Each of the four products then rounds its rows itself.
TEST(PassLaunches, RowsThatProducersCannotWriteAreRounded) {
  constexpr char kOdd[] = "hidden=72,ffn=100,heads=3,kv_heads=3,head_dim=12,vocab=257,context=256";
  EXPECT_EQ(LaunchesOfALayer(kOdd, 5), 6 + 4);
}

class RowsOfPasses : public testing::Test {
 protected:
  static constexpr int kSize = 32;

  PackedWeight Pack(int seed) {
    std::mt19937 random(seed);
    return PackOne(*backend_, TestWeight(TestMatrix::Random(kSize, kSize, random), DType::kBF16));
  }
  std::unique_ptr<Backend> backend_ = *MakeCudaBackend(0);
  PackedWeight first_ = Pack(1), second_ = Pack(2);
};

// A replay changes the matrix, and the memory of its rows, without a call of the host.
TEST_F(RowsOfPasses, AreForgottenByReplays) {
  const auto graphs = backend_->MakeGraphCache();
  std::mt19937 random(3);
  UploadedMatrix sum(*backend_, TestMatrix(4, kSize)), x(*backend_, TestMatrix(4, kSize));
  for (int run = 0; run < 5; ++run) {
    const TestMatrix numbers = TestMatrix::Random(4, kSize, random);
    backend_->Upload({reinterpret_cast<const std::byte*>(numbers.row(0)), sizeof(float) * kSize},
                     x.view().data);
    // Rows of the sum from before the replay.
    backend_->MatMulAdd(x.view(), first_, sum.view(), {.weight = &second_});
    const int64_t key = 1;
    graphs->Run({&key, 1},
                [&] { backend_->MatMulAdd(x.view(), first_, sum.view(), {.weight = &second_}); });
    const TestMatrix expected = Multiply(*backend_, sum.Get(), second_);
    UploadedMatrix product(*backend_, TestMatrix(4, kSize));
    backend_->MatMul(sum.view(), second_, product.view());
    EXPECT_TRUE(product.Get().SameBits(expected)) << run;
  }
}

// Memory that is freed and allocated again holds another matrix.
TEST_F(RowsOfPasses, AreForgottenWithTheirMemory) {
  std::mt19937 random(4);
  const TestMatrix numbers = TestMatrix::Random(4, kSize, random);
  UploadedMatrix x(*backend_, numbers);
  const void* address = nullptr;
  {
    UploadedMatrix sum(*backend_, numbers);
    address = sum.data();
    backend_->MatMulAdd(x.view(), first_, sum.view(), {.weight = &second_});
  }
  const int64_t before = simt::RuntimeCalls::Get().counts["launch"];
  UploadedMatrix product(*backend_, TestMatrix(4, kSize));
  backend_->MatMul({const_cast<void*>(address), DType::kF32, 4, kSize, kSize}, second_,
                   product.view());
  EXPECT_EQ(simt::RuntimeCalls::Get().counts["launch"] - before, 2);
}

using RowsOfPassesDeathTest = RowsOfPasses;
TEST_F(RowsOfPassesDeathTest, AnUnwrittenMatrixIsNotRead) {
  std::mt19937 random(5);
  const TestWeight half(TestMatrix::Random(kSize, kSize, random), DType::kBF16);
  const PackedWeight gated =
      PackParts(*backend_, {{half.view()}, {half.view()}}, PartOrder::kGateAndUp);
  UploadedMatrix x(*backend_, TestMatrix::Random(4, kSize, random));
  UploadedMatrix out(*backend_, TestMatrix(4, kSize));
  backend_->MatMulGated(x.view(), gated, Activation::kSilu, out.view(), {.weight = &second_});
  EXPECT_DEATH(out.Get(), "IsUnwritten");
  EXPECT_DEATH(backend_->ScaleAndCap(2.0f, 0.0f, out.view()), "IsUnwritten");
}

}  // namespace
}  // namespace tandem
