// Uploads of weights, which take no more host memory than a piece of a few MiB.
#ifndef TANDEM_KERNELS_CUDA_PACKING_ON_DEVICE_H_
#define TANDEM_KERNELS_CUDA_PACKING_ON_DEVICE_H_

#include <cstddef>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/cuda/operations.h"

namespace tandem::cuda {

// The rows of a piece take at most this many bytes, or are one row.
inline constexpr size_t kPieceBytes = size_t{16} << 20;

// Returns the size of the rows of all parts.
size_t PlainBytes(absl::Span<const WeightPart> parts);
// Uploads the rows of all parts, in order and without gaps.   to: [PlainBytes], on the device
void UploadPlainly(absl::Span<const WeightPart> parts, Backend* backend, void* to);

// Packs parts of bf16 in the order of TileLayout (packing.h). Pieces of plain rows are uploaded to
// temporary memory, from which a kernel writes the tiles. Waits for it, because products read
// weights before the kernels before them have ended.
//   packed: [PackedWeightBytes], on the device
absl::Status PackOnDevice(absl::Span<const WeightPart> parts, PartOrder order, Backend* backend,
                          Stream stream, void* packed, size_t piece_bytes = kPieceBytes);

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_PACKING_ON_DEVICE_H_
