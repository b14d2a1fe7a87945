#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/cuda/cuda_graph_cache.h"
#include "kernels/cuda/cuda_testing.h"

namespace tandem::cuda {
namespace {

constexpr int kInputs = 64;

class GraphCacheTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    cuda_ = dynamic_cast<CudaBackend*>(backend_.get());
    graph_cache_ = std::make_unique<CudaGraphCache>(cuda_);
    weight_ = Identity();
  }
  void TearDown() override {
    weight_ = PackedWeight();
    graph_cache_.reset();
    CudaTest::TearDown();
  }

  // An identity matrix in bf16, so that products of many rows use scratch memory.
  PackedWeight Identity() {
    std::vector<uint16_t> matrix(kInputs * kInputs, 0);
    for (int i = 0; i < kInputs; ++i) matrix[i * (kInputs + 1)] = 0x3F80;
    const WeightPart part{.matrix = {matrix.data(), DType::kBF16, kInputs, kInputs, kInputs}};
    auto weight = backend().Pack({&part, 1}, PartOrder::kConcatenated);
    TANDEM_CHECK(weight.ok());
    return *std::move(weight);
  }
  DeviceMatrix Filled(int rows, float value) {
    TestMatrix matrix(rows, kInputs);
    for (int r = 0; r < rows; ++r) {
      for (int c = 0; c < kInputs; ++c) matrix.row(r)[c] = value;
    }
    return DeviceMatrix(backend(), matrix);
  }
  // sum += x. Counts how often the cache calls `enqueue`.
  void Add(int64_t key, DeviceMatrix& x, DeviceMatrix& sum) {
    graph_cache_->Run({&key, 1}, [&] {
      ++num_asked_;
      backend().MatMulAdd(x.view(), weight_, sum.view());
    });
  }

  CudaBackend* cuda_ = nullptr;
  std::unique_ptr<CudaGraphCache> graph_cache_;
  PackedWeight weight_;
  int num_asked_ = 0;
};

TEST_F(GraphCacheTest, ReplaysFromTheThirdRunOnWithCurrentMemory) {
  DeviceMatrix x = Filled(1, 1.0f);
  DeviceMatrix sum = Filled(1, 0.0f);
  for (int i = 1; i <= 5; ++i) {
    const std::vector<float> value(kInputs, static_cast<float>(i));
    backend().Upload({reinterpret_cast<const std::byte*>(value.data()), kInputs * sizeof(float)},
                     x.view().data);
    Add(7, x, sum);
    EXPECT_EQ(num_asked_, std::min(i, 2));
    EXPECT_EQ(sum.Get().row(0)[3], static_cast<float>(i * (i + 1) / 2)) << i;
  }
}

TEST_F(GraphCacheTest, DistinguishesKeys) {
  DeviceMatrix one = Filled(1, 1.0f);
  DeviceMatrix ten = Filled(1, 10.0f);
  DeviceMatrix sum = Filled(1, 0.0f);
  for (int i = 0; i < 4; ++i) {
    Add(1, one, sum);
    Add(2, ten, sum);
  }
  EXPECT_EQ(sum.Get().row(0)[0], 44.0f);
  EXPECT_EQ(num_asked_, 4);
}

// The old recordings would use freed memory.
TEST_F(GraphCacheTest, RecordsAgainAfterScratchMemoryHasGrown) {
  DeviceMatrix x = Filled(12, 1.0f);
  DeviceMatrix sum = Filled(12, 0.0f);
  for (int i = 0; i < 3; ++i) Add(1, x, sum);
  EXPECT_EQ(num_asked_, 2);
  DeviceMatrix many = Filled(200, 1.0f);
  DeviceMatrix many_sums = Filled(200, 0.0f);
  backend().MatMulAdd(many.view(), weight_, many_sums.view());
  for (int i = 0; i < 3; ++i) Add(1, x, sum);
  EXPECT_EQ(num_asked_, 3);
  EXPECT_EQ(sum.Get().row(11)[0], 6.0f);
}

TEST_F(GraphCacheTest, ForgetDropsRecordings) {
  DeviceMatrix x = Filled(1, 1.0f);
  DeviceMatrix sum = Filled(1, 0.0f);
  for (int i = 0; i < 3; ++i) Add(1, x, sum);
  EXPECT_EQ(graph_cache_->num_recordings(), 1);
  graph_cache_->Forget();
  EXPECT_EQ(graph_cache_->num_recordings(), 0);
  Add(1, x, sum);
  EXPECT_EQ(num_asked_, 3);
  EXPECT_EQ(sum.Get().row(0)[0], 4.0f);
}

TEST_F(GraphCacheTest, KeepsTheMostRecentlyUsedKeys) {
  DeviceMatrix x = Filled(1, 1.0f);
  DeviceMatrix sum = Filled(1, 0.0f);
  for (int key = 0; key < CudaGraphCache::kMaxKeys + 6; ++key) {
    for (int i = 0; i < 2; ++i) Add(key, x, sum);
    Add(0, x, sum);
  }
  EXPECT_EQ(graph_cache_->num_recordings(), CudaGraphCache::kMaxKeys);
  num_asked_ = 0;
  Add(0, x, sum);
  EXPECT_EQ(num_asked_, 0);
  Add(1, x, sum);
  EXPECT_EQ(num_asked_, 1);
  EXPECT_EQ(sum.Get().row(0)[0], 3.0f * (CudaGraphCache::kMaxKeys + 6) + 2.0f);
}

// Downloads cannot be recorded.
TEST_F(GraphCacheTest, RunsWorkThatCannotBeRecorded) {
  DeviceMatrix x = Filled(1, 1.0f);
  DeviceMatrix sum = Filled(1, 0.0f);
  const int64_t key = 1;
  for (int i = 1; i <= 4; ++i) {
    std::vector<float> seen(kInputs);
    graph_cache_->Run({&key, 1}, [&] {
      backend().MatMulAdd(x.view(), weight_, sum.view());
      backend().Download(sum.data(),
                         {reinterpret_cast<std::byte*>(seen.data()), seen.size() * sizeof(float)});
    });
    EXPECT_EQ(seen[0], static_cast<float>(i));
  }
  EXPECT_EQ(graph_cache_->num_recordings(), 0);
}

TEST_F(GraphCacheTest, IsPartOfAnOuterRecording) {
  DeviceMatrix x = Filled(1, 1.0f);
  DeviceMatrix sum = Filled(1, 0.0f);
  for (int i = 0; i < 3; ++i) Add(1, x, sum);
  const auto seconds = cuda_->SecondsWithoutHost([&] { Add(1, x, sum); }, 2);
  ASSERT_TRUE(seconds.ok()) << seconds.status().message();
  EXPECT_EQ(sum.Get().row(0)[0], 6.0f);
}

}  // namespace
}  // namespace tandem::cuda
