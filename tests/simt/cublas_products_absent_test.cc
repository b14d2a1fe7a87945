#include <gtest/gtest.h>

#include "kernels/backend.h"
#include "kernels/cuda/cublas_products.h"

namespace tandem::cuda {
namespace {

TEST(CublasProductsAbsent, LeavesAllProductsToOurKernels) {
  const std::unique_ptr<Backend> backend = *MakeCpuBackend({});
  CublasProducts products(backend.get(), nullptr, 132);
  const int weight = 0;
  products.Add(&weight, 256, 4096);
  TileProductTask many;
  many.weight = &weight;
  many.num_tiles = 256;
  many.num_sms = 132;
  many.out = {nullptr, DType::kF32, 512, 4096, 4096};
  products.MakeCopy(many);
  EXPECT_FALSE(products.Has(many));
  EXPECT_FALSE(products.Multiply(many).ok());
  EXPECT_EQ(products.copy_bytes(), 0);
  EXPECT_EQ(products.wanted_bytes(), 0);
  EXPECT_FALSE(products.Release());
  EXPECT_TRUE(products.Report().empty());
  products.Remove(&weight);
}

}  // namespace
}  // namespace tandem::cuda
