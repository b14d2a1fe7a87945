#ifndef TANDEM_KERNELS_CUDA_PACKING_H_
#define TANDEM_KERNELS_CUDA_PACKING_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/cuda/product_layout.h"
#include "kernels/output_order.h"

namespace tandem::cuda {

// The order of outputs in a packed weight (product_layout.h). Weights of block formats are packed
// on the host, with all threads; those of bf16 on the device (packing_on_device.h).
class TileLayout : public OutputOrder {
 public:
  // Same as OutputOrder; its groups are halves of tiles.
  TileLayout(absl::Span<const WeightPart> parts, PartOrder order)
      : OutputOrder(parts, order, kTileOutputs / 2) {}

  int num_tiles() const { return CeilDiv(num_places(), kTileOutputs); }

  // Packs parts as blocks of `dtype`, quantising those that have another type.
  //   out: [BlockTiles::packed_bytes]
  std::vector<std::byte> PackBlocks(DType dtype) const;
  // Packs biases, [num_tiles * 16]; zeros for outputs without a bias.
  std::vector<float> PackBias() const;

 private:
  // Packs a tile into its pieces.  REQUIRES: `pieces` are zeros.
  void PackTileOfBlocks(int tile, DType dtype, std::byte* pieces) const;
};

// Returns the biases of all parts; zeros for a part without a bias.
std::vector<float> PackBiasPlainly(absl::Span<const WeightPart> parts);

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_PACKING_H_
