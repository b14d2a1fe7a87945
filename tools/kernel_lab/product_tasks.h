// Products as lines and passes launch them.
#ifndef TANDEM_TOOLS_KERNEL_LAB_PRODUCT_TASKS_H_
#define TANDEM_TOOLS_KERNEL_LAB_PRODUCT_TASKS_H_

#include "kernels/cuda/operations.h"
#include "kernels/cuda/product_layout.h"
#include "tools/kernel_lab/lab.h"

namespace tandem::kernel_lab {

inline constexpr float kEpsilon = 1e-5f;

// The only place that knows how variants are chosen and counted.
inline int NumVariants(DType /*dtype*/, int /*rows*/, int /*outputs*/) { return 1; }
inline void SetVariant(int /*variant*/, cuda::TileProductTask* /*task*/) {}

// Bytes of a packed weight.
inline size_t WeightBytes(DType dtype, int outputs, int inputs) {
  const int num_tiles = outputs / cuda::kTileOutputs;
  return IsBlocks(dtype) ? cuda::BlockTilesOf(dtype).packed_bytes(num_tiles, inputs)
                         : cuda::PackedWeightBytes(num_tiles, inputs);
}

// A product of a line, and the kernel that packs its rows, if that is one of its own. Rows are the
// numbers of the pool of floats from `rows_at` on.
struct ProductSetting {
  cuda::TileProductTask task;
  cuda::PackRowsTask pack;
  bool has_pack = false;
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
