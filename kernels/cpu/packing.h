#ifndef TANDEM_KERNELS_CPU_PACKING_H_
#define TANDEM_KERNELS_CPU_PACKING_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/output_order.h"

namespace tandem {

// The size of a panel of weights.
struct PanelShape {
  int num_steps = 0;
  size_t bytes = 0;
};
PanelShape PanelShapeOf(DType dtype, int inputs);

// Packs weights into panels of 64 outputs (cpu_kernels.h).
class PanelLayout : public OutputOrder {
 public:
  // As OutputOrder, with a panel as a group. The panels hold weights of `dtype`: that of the parts,
  // or a block format, to which they are quantised.
  PanelLayout(absl::Span<const WeightPart> parts, PartOrder order, DType dtype);

  int num_panels() const { return (num_places() + kPanelOutputs - 1) / kPanelOutputs; }
  size_t panel_bytes() const { return shape_.bytes; }

  // Writes all bytes of panel `panel`.   out: [panel_bytes()]
  void PackPanel(int panel, const CpuKernels& kernels, std::byte* out) const;
  // Writes the bias of a panel.   out: [64]
  void PackBias(int panel, float* out) const;

 private:
  void PackFloatPanel(int panel, const CpuKernels& kernels, std::byte* out) const;
  void PackPanelOfBlocks(int panel, const CpuKernels& kernels, std::byte* out) const;

  DType dtype_;
  PanelShape shape_;
};

}  // namespace tandem

#endif  // TANDEM_KERNELS_CPU_PACKING_H_
