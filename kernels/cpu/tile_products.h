// Products of many rows with block formats on a unit of tiles, such as AMX.
// Include it after a simd_*.h.
//
// Tiles multiply only the integers, exactly. Each sum is then added to its output's chain as in
// block_kernels.h, so the bits are the same.
#ifndef TANDEM_KERNELS_CPU_TILE_PRODUCTS_H_
#define TANDEM_KERNELS_CPU_TILE_PRODUCTS_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/block_kernels.h"

namespace tandem {
namespace {

// Rows of a tile. A tile with fewer rows takes as long.
inline constexpr int kTileRows = 16;

// The DotProduct of formats whose integers are multiplied by tiles.
struct NoDot {
  static constexpr bool kHasPairs = false;
  static constexpr bool kIsSigned = false;
};

// TileUnit has these members:
//   Configure(rows, steps): sets the shapes for Multiply until Release(); rows <= kTileRows
//   Multiply(a, a_stride, b, c): c = a * b, with
//     a: [rows, 4 * steps] signed bytes, rows a_stride bytes apart
//     b: [steps, 64, 4] unsigned bytes: four inputs of each of 64 outputs, as in a panel's steps
//     c: [rows, 64] of 32 bits
template <typename TileUnit, DType kDType>
struct TileFormat : BlockFormat<NoDot, kDType> {
  using Unit = TileUnit;
};

// Returns the codes of a group, or of half of one, as bytes: in place if they have 8 bits, else in
// `expanded`.   expanded: [steps, 256]
template <typename Format>
const std::byte* NumbersAsBytes(const std::byte* group, int half, std::byte* expanded) {
  constexpr int kSteps = kGroupSteps / Format::kLayout.halves();
  if constexpr (Format::kLayout.bits == 8) return group + half * kSteps * kStepBytes;
  for (int i = 0; i < kSteps; ++i) {
    for (int v = 0; v < kPanelVectors; ++v) {
      const Words numbers = Format::Numbers(group + v * kVectorBytes, half * kSteps + i);
      StoreWords16(reinterpret_cast<uint32_t*>(expanded + i * kStepBytes + v * kVectorBytes),
                   numbers);
    }
  }
  return expanded;
}

// The same as MultiplyUnit, for any number of rows.
template <typename Format>
void MultiplyUnitByTiles(const std::byte* unit, const ActivationGroup* activations, int groups,
                         int num_rows, bool fetches, float* sums) {
  constexpr BlockLayout kLayout = Format::kLayout;
  constexpr int kSteps = kGroupSteps / kLayout.halves();
  constexpr size_t kRowBytes = sizeof(ActivationGroup) * kLayout.unit_groups();
  alignas(64) std::byte expanded[kSteps * kStepBytes];
  alignas(64) int32_t products[kTileRows * kPanelOutputs];
  const std::byte* group = unit + kLayout.head_bytes();
  int configured = 0;
  for (int g = 0; g < groups; ++g, group += kLayout.group_bytes(), ++activations) {
    for (int line = 0; fetches && line < kLayout.group_bytes(); line += 64) {
      FetchNear(group + kNearFetchBytes + line);
    }
    for (int half = 0; half < kLayout.halves(); ++half) {
      const std::byte* const numbers = NumbersAsBytes<Format>(group, half, expanded);
      GroupScales scales[kPanelVectors];
      for (int v = 0; v < kPanelVectors; ++v) {
        scales[v] = Format::Scales(unit, group, half, v * kLanes);
      }
      for (int first = 0; first < num_rows; first += kTileRows) {
        const int rows = num_rows - first < kTileRows ? num_rows - first : kTileRows;
        if (rows != configured) Format::Unit::Configure(rows, kSteps);
        configured = rows;
        const ActivationGroup* const of_tile = activations + first * kLayout.unit_groups();
        Format::Unit::Multiply(of_tile->values + 4 * kSteps * half, kRowBytes, numbers, products);
        for (int r = 0; r < rows; ++r) {
          const ActivationGroup& row = of_tile[r * kLayout.unit_groups()];
          const Words beginning = BeginningOf<Format>(row, half);
          float* const out = sums + (first + r) * kPanelOutputs;
          for (int v = 0; v < kPanelVectors; ++v) {
            const auto* const product =
                reinterpret_cast<const uint32_t*>(products + r * kPanelOutputs + v * kLanes);
            const Words sum = EndOf<Format>(AddWords(beginning, LoadWords16(product)), row, half);
            AddProducts<Format>(sum, row, half, scales[v], out + v * kLanes);
          }
        }
      }
    }
  }
  Format::Unit::Release();
}

// The same as MultiplyBlockPanel.
template <typename Format>
void MultiplyTilePanel(const ProductTask& task, const std::byte* panel, IndexRange rows,
                       const std::byte* fetch_end, float* sums) {
  std::fill_n(sums, static_cast<size_t>(rows.end - rows.begin) * kPanelOutputs, 0.0f);
  ForEachUnit<Format>(
      task, panel, rows.begin, fetch_end,
      [&](const std::byte* unit, const ActivationGroup* activations, int groups, bool fetches) {
        MultiplyUnitByTiles<Format>(unit, activations, groups, rows.end - rows.begin, fetches,
                                    sums);
      });
}

}  // namespace
}  // namespace tandem

#endif  // TANDEM_KERNELS_CPU_TILE_PRODUCTS_H_
