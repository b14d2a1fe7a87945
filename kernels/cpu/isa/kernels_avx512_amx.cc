#include <immintrin.h>

#include "kernels/cpu/isa/simd_avx512.h"
// The SIMD vocabulary above must be included first.
#include "kernels/cpu/product_kernels.h"

namespace tandem {
namespace {

// The configuration in the layout of the ldtilecfg instruction.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// Tile 0 holds rows, tiles 1 and 2 hold weights, and tiles 4 to 7 hold the sums of 16 outputs each.
struct AmxUnit {
  static void Configure(int rows, int steps) {
    TileConfig config;
    config.rows[0] = static_cast<uint8_t>(rows);
    config.row_bytes[0] = static_cast<uint16_t>(4 * steps);
    for (int weights = 1; weights <= 2; ++weights) {
      config.rows[weights] = static_cast<uint8_t>(steps);
      config.row_bytes[weights] = kVectorBytes;
    }
    for (int sums = 4; sums <= 7; ++sums) {
      config.rows[sums] = static_cast<uint8_t>(rows);
      config.row_bytes[sums] = kVectorBytes;
    }
    asm volatile("ldtilecfg %0" : : "m"(config));  // GCC 12's intrinsic reads 8 bytes of it
  }
  static void Release() { _tile_release(); }

  static void Multiply(const int8_t* a, size_t a_stride, const std::byte* b, int32_t* c) {
    constexpr int kSumBytes = kPanelOutputs * sizeof(int32_t);
    // GCC 12 does not know that tile loads read memory. This completes all stores before them.
    asm volatile("" : : "r"(a), "r"(b) : "memory");
    _tile_zero(4);
    _tile_zero(5);
    _tile_zero(6);
    _tile_zero(7);
    _tile_loadd(0, a, a_stride);
    _tile_loadd(1, b, kStepBytes);
    _tile_loadd(2, b + kVectorBytes, kStepBytes);
    _tile_dpbsud(4, 0, 1);
    _tile_loadd(1, b + 2 * kVectorBytes, kStepBytes);
    _tile_dpbsud(5, 0, 2);
    _tile_loadd(2, b + 3 * kVectorBytes, kStepBytes);
    _tile_dpbsud(6, 0, 1);
    _tile_dpbsud(7, 0, 2);
    _tile_stored(4, c, kSumBytes);
    _tile_stored(5, c + kLanes, kSumBytes);
    _tile_stored(6, c + 2 * kLanes, kSumBytes);
    _tile_stored(7, c + 3 * kLanes, kSumBytes);
  }
};

template <DType kDType>
void MultiplyManyRows(const ProductTask& task, IndexRange units, IndexRange rows, float* sums) {
  if (rows.end - rows.begin < kTileRows) {
    kAvx512Bf16Kernels.multiply[static_cast<int>(BlockProductFormat(kDType))](task, units, rows,
                                                                              sums);
  } else {
    Multiply<TileFormat<AmxUnit, kDType>>(task, units, rows, sums);
  }
}

}  // namespace

CpuKernels WithAmx(CpuKernels kernels) {
  kernels.name = "avx512_amx";
  ForEachBlockFormat([&]<DType kDType>() {
    kernels.multiply[static_cast<int>(BlockProductFormat(kDType))] = MultiplyManyRows<kDType>;
  });
  return kernels;
}

}  // namespace tandem
