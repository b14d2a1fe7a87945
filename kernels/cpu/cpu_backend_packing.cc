// When and how the CPU packs weights.
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/packing.h"

namespace tandem {

absl::StatusOr<PackedWeight> CpuBackend::Pack(absl::Span<const WeightPart> parts, PartOrder order,
                                              std::optional<DType> dtype) {
  ASSIGN_OR_RETURN(PackedWeight weight, PackLater(parts, order, dtype));
  PackWhole(weight);
  return weight;
}

absl::StatusOr<PackedWeight> CpuBackend::PackLater(absl::Span<const WeightPart> parts,
                                                   PartOrder order, std::optional<DType> dtype) {
  ASSIGN_OR_RETURN(PackedWeight weight, Describe(parts, order, dtype));
  // Allocate at once, so that a lack of memory is reported here. Threads first touch the memory
  // when they pack.
  ASSIGN_OR_RETURN(weight.data, Allocate(weight.bytes_read));
  weight.unpacked.assign(parts.begin(), parts.end());
  for (WeightPart& part : weight.unpacked) part.bias = nullptr;
  return weight;
}

absl::StatusOr<PackedWeight> CpuBackend::UsePacked(absl::Span<const WeightPart> parts,
                                                   PartOrder order, std::optional<DType> dtype,
                                                   absl::Span<const std::byte> packed) {
  ASSIGN_OR_RETURN(PackedWeight weight, Describe(parts, order, dtype));
  if (packed.size() != weight.bytes_read) {
    return absl::InvalidArgumentError(absl::StrCat("packed weight: found ", packed.size(),
                                                   " bytes, expected ", weight.bytes_read));
  }
  TANDEM_CHECK(reinterpret_cast<uintptr_t>(packed.data()) % kPackedAlignment == 0);
  // The cast is safe: products write to a weight only while it has unpacked parts.
  weight.data = Buffer(nullptr, const_cast<std::byte*>(packed.data()), packed.size());
  return weight;
}

absl::StatusOr<PackedWeight> CpuBackend::PackInto(absl::Span<const WeightPart> parts,
                                                  PartOrder order, std::optional<DType> dtype,
                                                  absl::Span<std::byte> memory) {
  ASSIGN_OR_RETURN(PackedWeight weight, UsePacked(parts, order, dtype, memory));
  weight.unpacked.assign(parts.begin(), parts.end());
  PackWhole(weight);
  return weight;
}

size_t CpuBackend::PackedBytes(absl::Span<const WeightPart> parts, PartOrder order,
                               std::optional<DType> dtype) const {
  const PanelLayout layout(parts, order, dtype.value_or(parts[0].matrix.dtype));
  return layout.num_panels() * layout.panel_bytes();
}

// Makes a weight without its data.
absl::StatusOr<PackedWeight> CpuBackend::Describe(absl::Span<const WeightPart> parts,
                                                  PartOrder order, std::optional<DType> dtype) {
  TANDEM_CHECK(!parts.empty());
  PackedWeight weight;
  weight.order = order;
  weight.dtype = dtype.value_or(parts[0].matrix.dtype);
  const PanelLayout layout(parts, order, weight.dtype);
  weight.inputs = parts[0].matrix.cols;
  weight.outputs = layout.num_outputs();
  weight.bytes_read = PackedBytes(parts, order, dtype);
  if (layout.has_bias()) {
    ASSIGN_OR_RETURN(weight.bias, Allocate(sizeof(float) * kPanelOutputs * layout.num_panels()));
    for (int panel = 0; panel < layout.num_panels(); ++panel) {
      layout.PackBias(panel, static_cast<float*>(weight.bias.data()) + panel * kPanelOutputs);
    }
  }
  return weight;
}

void CpuBackend::PackWhole(const PackedWeight& weight) {
  if (weight.unpacked.empty()) return;
  const int num_panels =
      static_cast<int>(weight.data.size_bytes() / PanelShapeOf(weight.dtype, weight.inputs).bytes);
  // The same division as in products, so that a thread's memory is near it.
  pool_.Run([&](int thread) {
    const Share share = ShareOf(num_panels, pool_.num_threads(), thread);
    PackPanels(weight, {static_cast<int>(share.begin), static_cast<int>(share.end)});
  });
  weight.unpacked.clear();
}

void CpuBackend::PackPanels(const PackedWeight& weight, IndexRange panels) const {
  const PanelLayout layout(weight.unpacked, weight.order, weight.dtype);
  auto* const data = static_cast<std::byte*>(weight.data.data());
  for (int panel = panels.begin; panel < panels.end; ++panel) {
    layout.PackPanel(panel, kernels_, data + panel * layout.panel_bytes());
  }
}

}  // namespace tandem
