#ifndef TANDEM_KERNELS_CUDA_PACKING_H_
#define TANDEM_KERNELS_CUDA_PACKING_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/cuda/product_layout.h"
#include "kernels/output_order.h"

namespace tandem::cuda {

// Which output stands where in a packed weight (product_layout.h).
class TileLayout : public OutputOrder {
 public:
  // As OutputOrder, whose groups are halves of tiles.
  TileLayout(absl::Span<const WeightPart> parts, PartOrder order)
      : OutputOrder(parts, order, kTileOutputs / 2) {}

  int num_tiles() const { return CeilDiv(num_places(), kTileOutputs); }

  // Tile after tile, of parts of bf16.   out: [PackedWeightBytes]
  std::vector<std::byte> PackBf16() const;
  // As blocks of `dtype`, which the parts have or to which they are quantised.
  //   out: [BlockTiles::packed_bytes]
  std::vector<std::byte> PackBlocks(DType dtype) const;
  // [num_tiles * 16], zeros where there is none.
  std::vector<float> PackBias() const;

 private:
  // Into its pieces, which are zeros before.
  void PackTileOfBlocks(int tile, DType dtype, std::byte* pieces) const;
};

// The parts' rows one after the other, next to each other.
std::vector<std::byte> PackPlainly(absl::Span<const WeightPart> parts);
// Their biases, zeros where a part has none.
std::vector<float> PackBiasPlainly(absl::Span<const WeightPart> parts);

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_PACKING_H_
