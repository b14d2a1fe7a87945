// Products as lines and passes launch them.
#ifndef TANDEM_TOOLS_KERNEL_LAB_PRODUCT_TASKS_H_
#define TANDEM_TOOLS_KERNEL_LAB_PRODUCT_TASKS_H_

#include "kernels/cuda/launch_shapes.h"
#include "kernels/cuda/operations.h"
#include "kernels/cuda/product_layout.h"
#include "tools/kernel_lab/lab.h"

namespace tandem::kernel_lab {

inline constexpr float kEpsilon = 1e-5f;

// The number of variants of a product of `tiles` tiles of outputs, on a device like an H200. On
// others a line may have a kernel for many rows with one variant.
inline int NumProductVariants(DType dtype, int rows, int tiles) {
  constexpr int kNumSms = 132;
  if (dtype == DType::kBF16 && rows > cuda::kMostFewRows) return 1 + cuda::kNumWideVariants;
  return cuda::HasManyRows(dtype, rows, tiles, kNumSms) ? 1 : cuda::NumVariants(dtype, rows);
}

// Bytes of a packed weight.
inline size_t WeightBytes(DType dtype, int outputs, int inputs) {
  const int num_tiles = outputs / cuda::kTileOutputs;
  return IsBlocks(dtype) ? cuda::BlockTilesOf(dtype).packed_bytes(num_tiles, inputs)
                         : cuda::PackedWeightBytes(num_tiles, inputs);
}

// A product of a line, and the kernel that packs its rows. Rows are the numbers of the pool of
// floats from `rows_at` on.
struct ProductSetting {
  cuda::TileProductTask task;
  cuda::PackRowsTask pack;
  bool quantizes = false;
  size_t weight_bytes = 0;
  size_t rows_at = 0;
  size_t norm_at = 64;       // the norm's weights
  size_t residual_at = 128;  // what an output that is added to has before
};
// Returns the product of the line's rows from `first_row` on, with the pool's first weight.
ProductSetting MakeProduct(Lab& lab, const Line& line, int first_row);
void LaunchPack(Lab& lab, const ProductSetting& setting);
// Compares all rows of the line's product with those rows alone, by the first variant.
void CompareRowsAlone(Lab& lab, const Line& line, Comparison* comparison);

}  // namespace tandem::kernel_lab

#endif  // TANDEM_TOOLS_KERNEL_LAB_PRODUCT_TASKS_H_
