#include "kernels/cuda/packing_on_device.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/packing.h"

namespace tandem::cuda {
namespace {

size_t BytesOfRow(const ConstMatrixView& matrix) { return matrix.cols * SizeOf(matrix.dtype); }

int RowsOfPiece(size_t row_bytes, size_t piece_bytes) {
  return static_cast<int>(std::max<size_t>(1, piece_bytes / std::max<size_t>(1, row_bytes)));
}

// Calls use(first, count, rows) for pieces of consecutive rows. In `rows` each row has `pitch`
// bytes: its own, then zeros.
void ForEachPiece(
    const ConstMatrixView& matrix, size_t pitch, size_t piece_bytes,
    absl::FunctionRef<void(int first, int count, absl::Span<const std::byte> rows)> use) {
  const size_t stride = matrix.stride * SizeOf(matrix.dtype), row_bytes = BytesOfRow(matrix);
  const auto* const data = static_cast<const std::byte*>(matrix.data);
  const int most = RowsOfPiece(pitch, piece_bytes);
  std::vector<std::byte> gathered;
  for (int first = 0; first < matrix.rows; first += most) {
    const int count = std::min(most, matrix.rows - first);
    const std::byte* rows = data + first * stride;
    if (stride != pitch || row_bytes != pitch) {
      gathered.resize(count * pitch);
      for (int r = 0; r < count; ++r) {
        std::memcpy(gathered.data() + r * pitch, rows + r * stride, row_bytes);
      }
      rows = gathered.data();
    }
    use(first, count, {rows, count * pitch});
  }
}

}  // namespace

size_t PlainBytes(absl::Span<const WeightPart> parts) {
  size_t bytes = 0;
  for (const WeightPart& part : parts) bytes += part.matrix.rows * BytesOfRow(part.matrix);
  return bytes;
}

void UploadPlainly(absl::Span<const WeightPart> parts, Backend* backend, void* to) {
  auto* next = static_cast<std::byte*>(to);
  for (const WeightPart& part : parts) {
    ForEachPiece(part.matrix, BytesOfRow(part.matrix), kPieceBytes,
                 [&](int, int, absl::Span<const std::byte> rows) {
                   backend->Upload(rows, next);
                   next += rows.size();
                 });
  }
}

absl::Status PackOnDevice(absl::Span<const WeightPart> parts, PartOrder order, Backend* backend,
                          Stream stream, void* packed, size_t piece_bytes) {
  const TileLayout layout(parts, order);
  // A pair of inputs is a word.
  const size_t pitch = CeilDiv(layout.num_inputs(), 2) * sizeof(uint32_t);
  int most_rows = 0;
  for (const WeightPart& part : parts) most_rows = std::max(most_rows, part.matrix.rows);
  ASSIGN_OR_RETURN(const Buffer plain,
                   backend->Allocate(pitch * std::min(most_rows, RowsOfPiece(pitch, piece_bytes))));
  Error error = kNoError;
  PackOutputsTask task{.inputs = layout.num_inputs(), .places = {}, .packed = packed};
  const auto pack = [&](int first, int count) {
    task.first = first;
    task.num_rows = count;
    if (error == kNoError) error = Launch(task, stream);
  };
  const bool alternates = order == PartOrder::kGateAndUp;
  task.places.alternates = alternates;
  for (const WeightPart& part : parts) {
    task.rows = plain.data();
    ForEachPiece(part.matrix, pitch, piece_bytes,
                 [&](int first, int count, absl::Span<const std::byte> rows) {
                   backend->Upload(rows, plain.data());
                   pack(first, count);
                 });
    task.rows = nullptr;
    if (alternates)
      pack(part.matrix.rows, layout.num_tiles() * kTileOutputs / 2 - part.matrix.rows);
    task.places.first += alternates ? kTileOutputs / 2 : part.matrix.rows;
  }
  if (!alternates) pack(0, layout.num_tiles() * kTileOutputs - layout.num_outputs());
  RETURN_IF_ERROR(backend->Synchronize());
  if (error == kNoError) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat(View(backend->name()), ": packing weights: ", ErrorText(error)));
}

}  // namespace tandem::cuda
