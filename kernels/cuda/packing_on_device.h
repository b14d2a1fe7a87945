// Uploads of weights, which take no more host memory than a piece of a few MiB.
#ifndef TANDEM_KERNELS_CUDA_PACKING_ON_DEVICE_H_
#define TANDEM_KERNELS_CUDA_PACKING_ON_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
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

// Packs parts of bf16 or f16 in the order of TileLayout (packing.h), as bf16. Pieces of plain rows
// are uploaded to temporary memory, from which a kernel writes the tiles. Waits for it, because
// products read weights before the kernels before them have ended. Returns how many numbers of f16
// were rounded.   packed: [PackedWeightBytes], on the device
absl::StatusOr<int64_t> PackOnDevice(absl::Span<const WeightPart> parts, PartOrder order,
                                     Backend* backend, Stream stream, void* packed,
                                     size_t piece_bytes = kPieceBytes);

// Packs and uploads the weights of a backend.
class WeightPacker {
 public:
  // Weights of f16 become bf16, which tensor cores multiply, unless `keeps_f16`.
  WeightPacker(Backend* backend, Stream stream, bool keeps_f16)
      : backend_(*backend), stream_(stream), keeps_f16_(keeps_f16) {}

  // Backend::Pack and Backend::Import.
  absl::StatusOr<PackedWeight> Pack(absl::Span<const WeightPart> parts, PartOrder order,
                                    std::optional<DType> dtype);
  absl::StatusOr<ConstMatrixView> Import(const ConstMatrixView& host, Buffer* storage);

  // Says how many weights of f16 became bf16, and how many of their numbers were rounded. Empty
  // without any.
  std::vector<std::string> Report() const;

 private:
  absl::StatusOr<Buffer> PackedData(absl::Span<const WeightPart> parts, PartOrder order,
                                    DType dtype);
  absl::StatusOr<Buffer> Uploaded(absl::Span<const std::byte> host);
  void NoteConverted(int64_t numbers, int64_t rounded);

  Backend& backend_;
  const Stream stream_;
  const bool keeps_f16_;
  int64_t converted_ = 0;  // weights
  int64_t numbers_ = 0;
  int64_t rounded_ = 0;
};

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_PACKING_ON_DEVICE_H_
