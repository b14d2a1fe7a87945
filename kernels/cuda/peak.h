#ifndef TANDEM_KERNELS_CUDA_PEAK_H_
#define TANDEM_KERNELS_CUDA_PEAK_H_

#include "kernels/cuda/operations.h"

namespace tandem::cuda {

// The most that the device reads in a second, as kernels/peak.h has the most that a CPU computes. A
// block reads a stretch of 64 KB, 16 bytes a thread at a time, all 16 of a thread on their way at
// once.
inline constexpr int kReadThreads = 256;
inline constexpr int kReadsOfThread = 16;
inline constexpr int kReadBlockWords4 = kReadThreads * kReadsOfThread;
inline constexpr int kReadSumsOfBlock = kReadThreads / 32;

inline constexpr LaunchShape ReadShape(int64_t num_words4) {
  return {.x = static_cast<int>((num_words4 + kReadBlockWords4 - 1) / kReadBlockWords4)};
}

// Reads 16 bytes `num_words4` times. Each warp leaves the exclusive or of what it read.
struct ReadTask {
  const void* data = nullptr;
  int64_t num_words4 = 0;
  uint32_t* sums = nullptr;  // [blocks, kReadSumsOfBlock]
};
Error Launch(const ReadTask& task, Stream stream);

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_PEAK_H_
