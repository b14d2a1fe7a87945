// Products with packed panels. Include it after a simd_*.h.
//
// Lanes run over outputs. Each row and output has one chain of sums, in increasing input, for every
// number of rows: that is what makes rows independent. Rows are processed in groups whose sums fit
// the registers. All groups process a block of a panel, which fits the L1 cache, before the next
// block, and each group prefetches its part of a later block.
#ifndef TANDEM_KERNELS_CPU_PRODUCT_KERNELS_H_
#define TANDEM_KERNELS_CPU_PRODUCT_KERNELS_H_

#include <cstring>

#include "kernels/cpu/block_kernels.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/exponential.h"
#include "kernels/cpu/tile_products.h"

namespace tandem {
namespace {}  // namespace

namespace {

// A format of floats defines how the 64 bytes of a step that belong to one vector of outputs are
// multiplied with a row's activations: kInputsPerStep inputs in kSubsteps multiplications.
template <typename Format>
inline constexpr int kBlockInputs = kFloatBlockSteps* Format::kInputsPerStep;

// The blocks of formats of floats.
struct FloatBlocks {
  static constexpr int kBlockSteps = kFloatBlockSteps;
  static constexpr int kBlockBytes = kFloatBlockSteps * kStepBytes;
  static constexpr int kFetchBytes = 16384;
};

struct F32Format : FloatBlocks {
  using Activation = float;
  static constexpr int kInputsPerStep = 1;
  static constexpr int kSubsteps = 1;
  static Floats Weights(const std::byte* p, int) { return Load(reinterpret_cast<const float*>(p)); }
  static Floats ActivationOf(const float* x, int) { return Splat(*x); }
  static Floats Accumulate(Floats sum, Floats weights, Floats x) { return MulAdd(weights, x, sum); }
};

struct F16Format : FloatBlocks {
  using Activation = float;
  static constexpr int kInputsPerStep = 2;
  static constexpr int kSubsteps = 2;
  static Floats Weights(const std::byte* p, int odd) { return odd ? OddF16(p) : EvenF16(p); }
  static Floats ActivationOf(const float* x, int odd) { return Splat(x[odd]); }
  static Floats Accumulate(Floats sum, Floats weights, Floats x) { return MulAdd(weights, x, sum); }
};

struct BF16Format : FloatBlocks {
  using Activation = float;
  static constexpr int kInputsPerStep = 2;
  static constexpr int kSubsteps = 2;
  static Floats Weights(const std::byte* p, int odd) { return odd ? OddBf16(p) : EvenBf16(p); }
  static Floats ActivationOf(const float* x, int odd) { return Splat(x[odd]); }
  static Floats Accumulate(Floats sum, Floats weights, Floats x) { return MulAdd(weights, x, sum); }
};

// Adds the products of `steps` steps of a panel to `sums`, which start from 0 if `start`.
// Prefetches kFetchLines cache lines from `ahead` in each step.
//   activations: [kRows, kBlockInputs<Format>]; sums: [kRows, 64]
template <typename Format, int kRows, int kFetchLines>
void MultiplyFloats(const std::byte* weights, const void* activations, int steps, bool start,
                    const std::byte* ahead, float* sums) {
  constexpr int kVectors = SliceVectors(kRows);
  constexpr int kSlices = kPanelVectors / kVectors;
  constexpr bool kOnce = kFetchLines == kStepLines && kSlices == 1;
  constexpr int kSliceLines = kFetchLines > kSlices ? kFetchLines / kSlices : kFetchLines > 0;
  constexpr int kStride = kBlockInputs<Format>;
  for (int slice = 0; slice < kPanelVectors; slice += kVectors) {
    const auto* x = static_cast<const typename Format::Activation*>(activations);
    const std::byte* w = weights + slice * kVectorBytes;
    float* slice_sums = sums + slice * kLanes;
    Floats sum[kRows][kVectors];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        sum[r][v] = start ? Zero() : Load(slice_sums + r * kPanelOutputs + v * kLanes);
      }
    }
    for (int step = 0; step < steps; ++step) {
      if (slice < kFetchLines * kVectors) {
#pragma GCC unroll 4
        for (int line = 0; line < kSliceLines; ++line) {
          if (kOnce) {
            FetchNear(ahead + 64 * line);
          } else {
            FetchFar(ahead + 64 * line);
          }
        }
        ahead += 64 * kSliceLines;
      }
#pragma GCC unroll 2
      for (int sub = 0; sub < Format::kSubsteps; ++sub) {
        decltype(Format::Weights(w, 0)) weight[kVectors];
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) weight[v] = Format::Weights(w + v * kVectorBytes, sub);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          const auto activation = Format::ActivationOf(x + r * kStride, sub);
#pragma GCC unroll 4
          for (int v = 0; v < kVectors; ++v) {
            sum[r][v] = Format::Accumulate(sum[r][v], weight[v], activation);
          }
        }
      }
      w += kStepBytes;
      x += Format::kInputsPerStep;
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        Store(slice_sums + r * kPanelOutputs + v * kLanes, sum[r][v]);
      }
    }
  }
}

using GroupFunction = void (*)(const std::byte* weights, const void* activations, int steps,
                               bool start, const std::byte* ahead, float* sums);

template <typename Format, int kRows>
GroupFunction GroupFunctionFor(int rows, int fetch_lines) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return GroupFunctionFor<Format, kRows - 1>(rows, fetch_lines);
  }
  switch (fetch_lines) {
    case 0:
      return MultiplyFloats<Format, kRows, 0>;
    case 1:
      return MultiplyFloats<Format, kRows, 1>;
    case 2:
      return MultiplyFloats<Format, kRows, 2>;
    default:
      return MultiplyFloats<Format, kRows, kStepLines>;
  }
}

// The cache lines that group `group` of `groups` prefetches in a step. All groups together prefetch
// kStepLines.
inline int FetchLines(int groups, int group) {
  if (groups == 1) return kStepLines;
  if (groups == 2) return 2;
  if (groups == 3) return group == 2 ? 2 : 1;
  return group < 4 ? 1 : 0;
}

// sums = the products of the rows with one panel.   sums: [rows, 64]
//   fetch_end: the end of the bytes to prefetch
template <typename Format>
void MultiplyPanel(const ProductTask& task, const std::byte* panel, IndexRange rows,
                   const std::byte* fetch_end, float* sums) {
  const int num_rows = rows.end - rows.begin;
  const int groups = (num_rows + kMaxGroupRows - 1) / kMaxGroupRows;
  const int small = num_rows / groups;           // rows in a group
  const int larger = num_rows - small * groups;  // groups with one row more, which come first
  const bool once = groups == 1 && SliceVectors(num_rows) == kPanelVectors;
  constexpr int kSteps = Format::kBlockSteps;
  constexpr size_t kRowBytes = kBlockInputs<Format> * sizeof(typename Format::Activation);
  const auto* activations = static_cast<const std::byte*>(task.activations);
  for (int first = 0, block = 0; first < task.num_steps; first += kSteps, ++block) {
    const int steps = task.num_steps - first < kSteps ? task.num_steps - first : kSteps;
    const std::byte* weights = panel + static_cast<size_t>(block) * Format::kBlockBytes;
    const std::byte* ahead = weights + (once ? kNearFetchBytes : Format::kFetchBytes);
    const bool fetch = ahead < fetch_end;
    const std::byte* x =
        activations + (static_cast<size_t>(block) * task.num_rows + rows.begin) * kRowBytes;
    float* group_sums = sums;
    for (int group = 0; group < groups; ++group) {
      const int size = small + (group < larger ? 1 : 0);
      const int lines = fetch ? FetchLines(groups, group) : 0;
      GroupFunctionFor<Format, kMaxGroupRows>(size, lines)(weights, x, steps, first == 0, ahead,
                                                           group_sums);
      ahead += static_cast<size_t>(lines) * steps * 64;
      x += size * kRowBytes;
      group_sums += size * kPanelOutputs;
    }
  }
}

// out = sums + bias, or out += sums + bias.   sums: [rows, 64]
inline void FinishPanel(const ProductTask& task, int panel, IndexRange rows, const float* sums) {
  const int first_col = panel * kPanelOutputs;
  for (int r = rows.begin; r < rows.end; ++r, sums += kPanelOutputs) {
    float* out = task.out + r * task.out_stride + first_col;
    for (int c = 0; c < kPanelOutputs && first_col + c < task.out_cols; c += kLanes) {
      const int left = task.out_cols - first_col - c;
      const int count = left < kLanes ? left : kLanes;
      Floats value = Load(sums + c);
      if (task.bias != nullptr) value = Add(value, Load(task.bias + first_col + c));
      if (task.end == Epilogue::kAdd) value = Add(LoadPart(out + c, count), value);
      StorePart(out + c, value, count);
    }
  }
}

// The activation function of an epilogue, applied to the gate.
inline Floats Activated(Epilogue end, Floats gate) {
  Floats steepness = gate;
  if (end == Epilogue::kGeGlu) {
    const Floats cube = Mul(Mul(gate, gate), gate);
    steepness = Mul(Splat(1.59576912f), MulAdd(Splat(0.044715f), cube, gate));
  }
  return Div(gate, Add(Splat(1.0f), Exp(Sub(Zero(), steepness))));
}

// out = activation(gate) * up.   gates, ups: [rows, 64]
inline void FinishGated(const ProductTask& task, int unit, IndexRange rows, const float* gates,
                        const float* ups) {
  const int first_col = unit * kPanelOutputs;
  const float* gate_bias = task.bias == nullptr ? nullptr : task.bias + 2 * first_col;
  for (int r = rows.begin; r < rows.end; ++r, gates += kPanelOutputs, ups += kPanelOutputs) {
    float* out = task.out + r * task.out_stride + first_col;
    for (int c = 0; c < kPanelOutputs && first_col + c < task.out_cols; c += kLanes) {
      const int left = task.out_cols - first_col - c;
      Floats gate = Load(gates + c);
      Floats up = Load(ups + c);
      if (gate_bias != nullptr) {
        gate = Add(gate, Load(gate_bias + c));
        up = Add(up, Load(gate_bias + kPanelOutputs + c));
      }
      StorePart(out + c, Mul(Activated(task.end, gate), up), left < kLanes ? left : kLanes);
    }
  }
}

template <typename Format>
void MultiplyAnyPanel(const ProductTask& task, const std::byte* panel, IndexRange rows,
                      const std::byte* fetch_end, float* sums) {
  if constexpr (requires { typename Format::Unit; }) {
    MultiplyTilePanel<Format>(task, panel, rows, fetch_end, sums);
  } else if constexpr (requires { Format::kLayout; }) {
    MultiplyBlockPanel<Format>(task, panel, rows, fetch_end, sums);
  } else {
    MultiplyPanel<Format>(task, panel, rows, fetch_end, sums);
  }
}

template <typename Format>
void Multiply(const ProductTask& task, IndexRange units, IndexRange rows, float* sums) {
  const size_t panel_bytes = task.panel_bytes;
  const int panels_per_unit = IsGated(task.end) ? 2 : 1;
  const std::byte* fetch_end = task.panels + units.end * panels_per_unit * panel_bytes;
  for (int unit = units.begin; unit < units.end; ++unit) {
    if (IsGated(task.end)) {
      const std::byte* panel = task.panels + 2 * unit * panel_bytes;
      float* ups = sums + static_cast<size_t>(rows.end - rows.begin) * kPanelOutputs;
      MultiplyAnyPanel<Format>(task, panel, rows, fetch_end, sums);
      MultiplyAnyPanel<Format>(task, panel + panel_bytes, rows, fetch_end, ups);
      FinishGated(task, unit, rows, sums, ups);
    } else {
      MultiplyAnyPanel<Format>(task, task.panels + unit * panel_bytes, rows, fetch_end, sums);
      FinishPanel(task, unit, rows, sums);
    }
  }
}

// Copies the activations of rows [rows) into blocks of inputs. Zeros complete the last step.
template <typename Format>
void PackF32Activations(const float* x, int64_t stride, int inputs, int num_rows, IndexRange rows,
                        void* packed) {
  constexpr int kBlock = kBlockInputs<Format>;
  auto* out = static_cast<float*>(packed);
  for (int first = 0; first < inputs;
       first += kBlock, out += static_cast<size_t>(num_rows) * kBlock) {
    const int count = inputs - first < kBlock ? inputs - first : kBlock;
    for (int r = rows.begin; r < rows.end; ++r) {
      float* to = out + static_cast<size_t>(r) * kBlock;
      std::memcpy(to, x + r * stride + first, count * sizeof(float));
      if (count % Format::kInputsPerStep != 0) to[count] = 0.0f;
    }
  }
}

}  // namespace

}  // namespace tandem

#endif  // TANDEM_KERNELS_CPU_PRODUCT_KERNELS_H_
