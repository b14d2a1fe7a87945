#ifndef TANDEM_KERNELS_CUDA_PACKING_H_
#define TANDEM_KERNELS_CUDA_PACKING_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/backend.h"

namespace tandem::cuda {

// Which output stands where in a packed weight (product_layout.h).
class TileLayout {
 public:
  // Parts of one number of inputs; two of one shape for kGateAndUp.
  TileLayout(absl::Span<const WeightPart> parts, PartOrder order);

  int num_outputs() const { return num_outputs_; }
  int num_tiles() const { return num_tiles_; }
  int num_inputs() const { return parts_[0].matrix.cols; }
  bool has_bias() const;

  // Tile after tile, of parts of bf16.   out: [PackedWeightBytes]
  std::vector<std::byte> PackBf16() const;
  // As blocks of `dtype`, which the parts have or to which they are quantised.
  //   out: [BlockTiles::packed_bytes]
  std::vector<std::byte> PackBlocks(DType dtype) const;
  // [num_tiles * 16], zeros where there is none.
  std::vector<float> PackBias() const;

 private:
  struct Source {
    const WeightPart* part = nullptr;  // none: padding
    int row = 0;
  };
  Source SourceOf(int tile, int output) const;
  // Into its pieces, which are zeros before.
  void PackTileOfBlocks(int tile, DType dtype, std::byte* pieces) const;

  absl::Span<const WeightPart> parts_;
  PartOrder order_;
  int num_outputs_ = 0;
  int num_tiles_ = 0;
};

// The parts' rows one after the other, next to each other.
std::vector<std::byte> PackPlainly(absl::Span<const WeightPart> parts);
// Their biases, zeros where a part has none.
std::vector<float> PackBiasPlainly(absl::Span<const WeightPart> parts);

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_PACKING_H_
