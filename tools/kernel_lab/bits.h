// Chains of tensor-core steps on given bits, for the tests of docs/cuda.md's order of sums.
#ifndef TANDEM_TOOLS_KERNEL_LAB_BITS_H_
#define TANDEM_TOOLS_KERNEL_LAB_BITS_H_

#include <cstdint>

#include "kernels/cuda/operations.h"

namespace tandem::kernel_lab {

// Multiplies tiles of 16 by 8 outputs by mma.sync, one warp for each.
struct TileChainTask {
  const void* a = nullptr;       // [tiles, steps, lanes] of 16 bytes: MultiplyTile's registers
  const void* b = nullptr;       // [tiles, steps, lanes] of 8 bytes
  const float* start = nullptr;  // [tiles, lanes, 4]: the sums before the first step
  float* sums = nullptr;         // [tiles, lanes, 4]
  int num_tiles = 0;
  int num_steps = 0;  // of 16 inputs
};
cuda::Error Launch(const TileChainTask& task, cuda::Stream stream);

// The same by wgmma: 64 outputs by `rows` rows, which are 8, 64, 128 or 256. Its m64nNk16 has the
// tiles of mma.sync: four of outputs, one for each warp, times rows / 8.
struct WideChainTask {
  const void* a = nullptr;  // [64, 16 steps] of bf16
  const void* b = nullptr;  // [rows, 16 steps] of bf16
  float* sums = nullptr;    // [4, rows / 8, lanes, 4]
  int rows = 0;
  int num_steps = 0;
  bool a_from_registers = false;
  bool starts_without_sums = false;  // the first step has no accumulator, instead of +0
};
// On the host twin these return an error.
cuda::Error Launch(const WideChainTask& task, cuda::Stream stream);

}  // namespace tandem::kernel_lab

#endif  // TANDEM_TOOLS_KERNEL_LAB_BITS_H_
