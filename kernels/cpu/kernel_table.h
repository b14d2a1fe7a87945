// Makes an instruction set's table of kernels. Include it after a simd_*.h.
#ifndef TANDEM_KERNELS_CPU_KERNEL_TABLE_H_
#define TANDEM_KERNELS_CPU_KERNEL_TABLE_H_

#include <cstring>

#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/block_kernels.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/product_kernels.h"
#include "kernels/cpu/row_kernels.h"
#include "kernels/cpu/sampling_kernels.h"
#include "kernels/cpu/search_kernels.h"

namespace tandem {
namespace {

// How far ahead packing (packing.h) prefetches the rows of weights. The hardware does not prefetch
// 64 rows a page apart by itself: these are more streams than it follows.
inline constexpr int kPackFetchBytes = 512;

inline void TransposeOutputsOf(const std::byte* const* outputs, int words, std::byte* out) {
  constexpr int kLineWords = 16;  // words of a cache line
  const float* rows[kPanelOutputs];
  for (int lane = 0; lane < kPanelOutputs; ++lane) {
    rows[lane] = reinterpret_cast<const float*>(outputs[lane]);  // words of any type
  }
  int word = 0;
  for (; word + kLineWords <= words; word += kLineWords) {
    float* const steps = reinterpret_cast<float*>(out + static_cast<size_t>(word) * kStepBytes);
    for (int lane = 0; lane < kPanelOutputs; lane += 16) {
      for (int i = 0; i < 16; ++i) {
        FetchFar(outputs[lane + i] + word * sizeof(float) + kPackFetchBytes);
      }
      Transpose(rows + lane, word, kLineWords, steps + lane, kPanelOutputs);
    }
  }
  for (; word < words; ++word) {
    for (int lane = 0; lane < kPanelOutputs; ++lane) {
      std::memcpy(out + static_cast<size_t>(word) * kStepBytes + lane * sizeof(float),
                  outputs[lane] + word * sizeof(float), sizeof(float));
    }
  }
}

}  // namespace

namespace {

template <typename DotProduct, DType kDType>
constexpr void AddBlockFormat(CpuKernels* kernels) {
  constexpr int kFormat = static_cast<int>(BlockProductFormat(kDType));
  constexpr int kUnitGroups = BlockLayoutOf(kDType).unit_groups();
  kernels->multiply[kFormat] = Multiply<BlockFormat<DotProduct, kDType>>;
  kernels->pack_activations[kFormat] = PackActivationGroups<kUnitGroups>;
}

// DotProduct: the dot product of integers, as PlainDot.
template <typename DotProduct = PlainDot>
constexpr CpuKernels MakeKernelTable(const char* name) {
  CpuKernels kernels;
  kernels.name = name;
  kernels.multiply[static_cast<int>(ProductFormat::kF32)] = Multiply<F32Format>;
  kernels.multiply[static_cast<int>(ProductFormat::kF16)] = Multiply<F16Format>;
  kernels.multiply[static_cast<int>(ProductFormat::kBF16)] = Multiply<BF16Format>;
  kernels.pack_activations[static_cast<int>(ProductFormat::kF32)] = PackF32Activations<F32Format>;
  kernels.pack_activations[static_cast<int>(ProductFormat::kF16)] = PackF32Activations<F16Format>;
  kernels.pack_activations[static_cast<int>(ProductFormat::kBF16)] = PackF32Activations<BF16Format>;
  ForEachBlockFormat([&]<DType kDType>() { AddBlockFormat<DotProduct, kDType>(&kernels); });
  kernels.transpose_outputs = TransposeOutputsOf;
  kernels.search_scale = SearchScaleOf;
  kernels.search_line = SearchLineOf;
  kernels.rms_norm = RmsNormOf;
  kernels.subtract_mean = SubtractMeanOf;
  kernels.scale_and_cap = ScaleAndCapOf;
  kernels.add_scaled = AddScaledOf;
  kernels.rotate = RotateHead;
  kernels.attend[static_cast<int>(KvDType::kF32)] = AttendOf<F32Kv>;
  kernels.attend[static_cast<int>(KvDType::kBF16)] = AttendOf<BF16Kv>;
  kernels.attend[static_cast<int>(KvDType::kInt8)] = AttendOf<Int8Kv>;
  kernels.merge_chunks = MergeChunks;
  kernels.exponential = ExponentialOf;
  kernels.largest_or_nan = LargestOrNan;
  kernels.softmax = SoftmaxOf;
  kernels.race_candidates = RaceCandidatesOf;
  return kernels;
}

}  // namespace

}  // namespace tandem

#endif  // TANDEM_KERNELS_CPU_KERNEL_TABLE_H_
