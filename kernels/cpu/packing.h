#ifndef TANDEM_KERNELS_CPU_PACKING_H_
#define TANDEM_KERNELS_CPU_PACKING_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/cpu/cpu_kernels.h"

namespace tandem {

// The panels of weights of some dtype.
struct PanelShape {
  int num_steps = 0;
  size_t bytes = 0;
};
PanelShape PanelShapeOf(DType dtype, int inputs);

// Where each of the 64 outputs of a packed weight's panels comes from (cpu_kernels.h).
class PanelLayout {
 public:
  // Parts of one dtype and one number of inputs; two of one shape for kGateAndUp. Panels hold
  // `dtype`: the parts' own, or one to which they are quantised.
  PanelLayout(absl::Span<const WeightPart> parts, PartOrder order, DType dtype);

  int num_panels() const { return num_panels_; }
  int num_outputs() const { return num_outputs_; }
  size_t panel_bytes() const { return shape_.bytes; }
  bool has_bias() const;

  // Writes panel `panel`, wholly.
  void PackPanel(int panel, const CpuKernels& kernels, std::byte* out) const;
  // out: [64]
  void PackBias(int panel, float* out) const;

 private:
  struct Source {
    const ConstMatrixView* matrix = nullptr;  // none: padding
    int row = 0;                              // of it
    const float* bias = nullptr;              // of this output
  };
  Source SourceOf(int panel, int lane) const;
  void PackFloatPanel(int panel, const CpuKernels& kernels, std::byte* out) const;
  void PackPanelOfBlocks(int panel, std::byte* out) const;

  absl::Span<const WeightPart> parts_;
  PartOrder order_;
  DType source_;
  DType dtype_;
  int num_inputs_;
  PanelShape shape_;
  int num_outputs_ = 0;
  int num_panels_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_KERNELS_CPU_PACKING_H_
