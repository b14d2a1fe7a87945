#include "kernels/cpu/simd_avx512.h"
// The vocabulary comes first.
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/vnni_dot_avx512.h"

namespace tandem {
namespace {

// Pairs of bf16, products exact and sums rounded by the CPU's rule: f32, subnormals as zeros.
struct BF16DotFormat : FloatBlocks {
  using Activation = uint16_t;
  static constexpr int kInputsPerStep = 2;
  static constexpr int kSubsteps = 1;
  static __m512bh Weights(const std::byte* p, int) {
    return reinterpret_cast<__m512bh>(_mm512_loadu_si512(p));
  }
  static __m512bh ActivationOf(const uint16_t* x, int) {
    int32_t pair;
    std::memcpy(&pair, x, sizeof(pair));
    return reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
  }
  static Floats Accumulate(Floats sum, __m512bh weights, __m512bh x) {
    return _mm512_dpbf16_ps(sum, weights, x);
  }
};

// As PackF32Activations, rounded to bf16.
void PackBF16Activations(const float* x, int64_t stride, int inputs, int num_rows, IndexRange rows,
                         void* packed) {
  constexpr int kBlock = kBlockInputs<BF16DotFormat>;
  auto* out = static_cast<uint16_t*>(packed);
  for (int first = 0; first < inputs;
       first += kBlock, out += static_cast<size_t>(num_rows) * kBlock) {
    const int count = inputs - first < kBlock ? inputs - first : kBlock;
    for (int r = rows.begin; r < rows.end; ++r) {
      const float* from = x + r * stride + first;
      uint16_t* to = out + static_cast<size_t>(r) * kBlock;
      for (int i = 0; i < count; i += kLanes) {
        const Floats values = LoadPart(from + i, LanesLeft(count, i));
        const auto rounded = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(values));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), rounded);
      }
    }
  }
}

constexpr CpuKernels MakeBF16KernelTable() {
  CpuKernels kernels = MakeKernelTable<VnniDot>("avx512_bf16");
  kernels.multiply[static_cast<int>(ProductFormat::kBF16Dot)] = Multiply<BF16DotFormat>;
  kernels.pack_activations[static_cast<int>(ProductFormat::kBF16Dot)] = PackBF16Activations;
  return kernels;
}

}  // namespace

constinit const CpuKernels kAvx512Bf16Kernels = MakeBF16KernelTable();

}  // namespace tandem
