#ifndef TANDEM_KERNELS_OUTPUT_ORDER_H_
#define TANDEM_KERNELS_OUTPUT_ORDER_H_

#include "absl/algorithm/container.h"
#include "absl/types/span.h"
#include "base/check.h"
#include "kernels/backend.h"

namespace tandem {

// Maps places in a packed weight to the outputs of its parts.
class OutputOrder {
 public:
  // The parts have the same dtype and number of inputs. For kGateAndUp there are two parts of the
  // same shape, whose outputs alternate in groups of `group`.
  OutputOrder(absl::Span<const WeightPart> parts, PartOrder order, int group)
      : parts_(parts), order_(order), group_(group) {
    TANDEM_CHECK(!parts.empty());
    for (const WeightPart& part : parts) {
      TANDEM_CHECK(part.matrix.dtype == parts[0].matrix.dtype && part.matrix.cols == num_inputs());
      num_outputs_ += part.matrix.rows;
    }
    num_places_ = num_outputs_;
    if (order != PartOrder::kGateAndUp) return;
    const int rows = parts[0].matrix.rows;
    TANDEM_CHECK(parts.size() == 2 && parts[1].matrix.rows == rows);
    num_places_ = 2 * ((rows + group - 1) / group * group);
  }

  int num_inputs() const { return parts_[0].matrix.cols; }
  int num_outputs() const { return num_outputs_; }
  bool has_bias() const {
    return absl::c_any_of(parts_, [](const WeightPart& part) { return part.bias != nullptr; });
  }

 protected:
  struct Source {
    const WeightPart* part = nullptr;  // null: padding
    int row = 0;                       // of the part

    float bias() const { return part == nullptr || part->bias == nullptr ? 0.0f : part->bias[row]; }
  };
  // The part and row of the output at `place` in the packed weight.
  Source SourceOf(int place) const {
    if (order_ == PartOrder::kGateAndUp) {
      const WeightPart& part = parts_[place / group_ % 2];
      const int row = place / group_ / 2 * group_ + place % group_;
      return row < part.matrix.rows ? Source{&part, row} : Source{};
    }
    for (const WeightPart& part : parts_) {
      if (place < part.matrix.rows) return {&part, place};
      place -= part.matrix.rows;
    }
    return {};
  }
  const ConstMatrixView& first() const { return parts_[0].matrix; }
  int num_places() const { return num_places_; }  // from here on, everything is padding

 private:
  absl::Span<const WeightPart> parts_;
  PartOrder order_;
  int group_;
  int num_outputs_ = 0;
  int num_places_ = 0;
};

}  // namespace tandem

#endif  // TANDEM_KERNELS_OUTPUT_ORDER_H_
