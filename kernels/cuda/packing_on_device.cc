#include "kernels/cuda/packing_on_device.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/log.h"
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

absl::StatusOr<int64_t> PackOnDevice(absl::Span<const WeightPart> parts, PartOrder order,
                                     Backend* backend, Stream stream, void* packed,
                                     size_t piece_bytes) {
  const TileLayout layout(parts, order);
  // A pair of inputs is a word.
  const size_t pitch = CeilDiv(layout.num_inputs(), 2) * sizeof(uint32_t);
  int most_rows = 0;
  for (const WeightPart& part : parts) most_rows = std::max(most_rows, part.matrix.rows);
  ASSIGN_OR_RETURN(const Buffer plain,
                   backend->Allocate(pitch * std::min(most_rows, RowsOfPiece(pitch, piece_bytes))));
  uint32_t num_rounded = 0;
  const absl::Span<std::byte> rounded(reinterpret_cast<std::byte*>(&num_rounded),
                                      sizeof(num_rounded));
  Buffer rounded_on_device;
  if (parts[0].matrix.dtype == DType::kF16) {
    ASSIGN_OR_RETURN(rounded_on_device, backend->Allocate(sizeof(num_rounded)));
    backend->Upload(rounded, rounded_on_device.data());
  }
  Error error = kNoError;
  PackOutputsTask task{.inputs = layout.num_inputs(),
                       .num_rounded = static_cast<uint32_t*>(rounded_on_device.data()),
                       .places = {},
                       .packed = packed};
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
  if (task.num_rounded != nullptr) backend->Download(task.num_rounded, rounded);
  RETURN_IF_ERROR(backend->Synchronize());
  if (error == kNoError) return int64_t{num_rounded};
  return absl::InternalError(
      absl::StrCat(View(backend->name()), ": packing weights: ", ErrorText(error)));
}

absl::StatusOr<Buffer> WeightPacker::Uploaded(absl::Span<const std::byte> host) {
  ASSIGN_OR_RETURN(Buffer buffer, backend_.Allocate(host.size()));
  backend_.Upload(host, buffer.data());
  return buffer;
}

void WeightPacker::NoteConverted(int64_t numbers, int64_t rounded) {
  if (converted_ == 0) {
    Log(LogLevel::kInfo, absl::StrCat("device=", View(backend_.name()),
                                      " converted=f16 to=bf16 reason=\"tensor cores; --compute "
                                      "f32 keeps f16\""));
  }
  ++converted_;
  numbers_ += numbers;
  rounded_ += rounded;
}

std::vector<std::string> WeightPacker::Report() const {
  if (converted_ == 0) return {};
  return {absl::StrCat("converted=f16 to=bf16 weights=", converted_, " numbers=", numbers_,
                       " rounded=", rounded_)};
}

absl::StatusOr<Buffer> WeightPacker::PackedData(absl::Span<const WeightPart> parts, PartOrder order,
                                                DType dtype) {
  const TileLayout layout(parts, order);
  if (IsBlocks(dtype)) return Uploaded(layout.PackBlocks(dtype));
  if (!IsInTiles(dtype)) {
    ASSIGN_OR_RETURN(Buffer data, backend_.Allocate(PlainBytes(parts)));
    UploadPlainly(parts, &backend_, data.data());
    return data;
  }
  ASSIGN_OR_RETURN(Buffer data,
                   backend_.Allocate(PackedWeightBytes(layout.num_tiles(), layout.num_inputs())));
  ASSIGN_OR_RETURN(const int64_t rounded,
                   PackOnDevice(parts, order, &backend_, stream_, data.data()));
  if (parts[0].matrix.dtype == DType::kF16) {
    NoteConverted(int64_t{layout.num_outputs()} * layout.num_inputs(), rounded);
  }
  return data;
}

absl::StatusOr<PackedWeight> WeightPacker::Pack(absl::Span<const WeightPart> parts, PartOrder order,
                                                std::optional<DType> dtype) {
  const TileLayout layout(parts, order);
  const DType given = parts[0].matrix.dtype;
  PackedWeight weight;
  weight.dtype = dtype.value_or(given);
  TANDEM_CHECK(weight.dtype == given || IsBlocks(weight.dtype));
  if (weight.dtype == DType::kF16 && !keeps_f16_) weight.dtype = DType::kBF16;
  weight.order = order;
  weight.outputs = layout.num_outputs();
  weight.inputs = layout.num_inputs();
  ASSIGN_OR_RETURN(weight.data, PackedData(parts, order, weight.dtype));
  weight.bytes_read = weight.data.size_bytes();
  if (layout.has_bias()) {
    const std::vector<float> bias =
        IsInTiles(weight.dtype) ? layout.PackBias() : PackBiasPlainly(parts);
    ASSIGN_OR_RETURN(weight.bias, Uploaded({reinterpret_cast<const std::byte*>(bias.data()),
                                            bias.size() * sizeof(float)}));
  }
  return weight;
}

absl::StatusOr<ConstMatrixView> WeightPacker::Import(const ConstMatrixView& host, Buffer* storage) {
  const WeightPart parts[] = {{.matrix = host}};
  if (IsBlocks(host.dtype)) {
    const TileLayout layout(parts, PartOrder::kConcatenated);
    ASSIGN_OR_RETURN(*storage, Uploaded(layout.PackBlocks(host.dtype)));
  } else {
    ASSIGN_OR_RETURN(*storage, backend_.Allocate(PlainBytes(parts)));
    UploadPlainly(parts, &backend_, storage->data());
  }
  return ConstMatrixView(storage->data(), host.dtype, host.rows, host.cols, host.cols);
}

}  // namespace tandem::cuda
