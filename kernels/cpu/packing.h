#ifndef TANDEM_KERNELS_CPU_PACKING_H_
#define TANDEM_KERNELS_CPU_PACKING_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "kernels/backend.h"

namespace tandem {

// Where each of the 64 outputs of a packed weight's panels comes from (cpu_kernels.h).
class PanelLayout {
 public:
  // Parts of one dtype and one number of inputs; two of one shape for kGateAndUp.
  PanelLayout(absl::Span<const WeightPart> parts, PartOrder order);

  int num_panels() const { return num_panels_; }
  int num_outputs() const { return num_outputs_; }
  int num_steps() const { return num_steps_; }
  size_t panel_bytes() const;
  bool has_bias() const;

  // Writes panel `panel`, wholly.
  void PackPanel(int panel, std::byte* out) const;
  // out: [64]
  void PackBias(int panel, float* out) const;

 private:
  struct Source {
    const std::byte* inputs = nullptr;  // none: padding
    const float* bias = nullptr;        // of this output
  };
  Source SourceOf(int panel, int lane) const;

  absl::Span<const WeightPart> parts_;
  PartOrder order_;
  int num_inputs_;
  size_t element_bytes_;
  int num_outputs_ = 0;
  int num_panels_ = 0;
  int num_steps_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_KERNELS_CPU_PACKING_H_
