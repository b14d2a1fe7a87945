#include "kernels/cpu/isa/simd_avx512.h"
// The SIMD vocabulary above must be included first.
#include "kernels/cpu/isa/int8_attention_avx512.h"
#include "kernels/cpu/kernel_table.h"

namespace tandem {
namespace {

// Dot products of pairs of bf16. Products are exact. Sums are rounded to f32 by the CPU's rule, and
// subnormals count as zeros.
struct BF16DotFormat : FloatBlocks {
  using Activation = uint16_t;
  static constexpr int kInputsPerStep = 2;
  static constexpr int kSubsteps = 1;
  // Without the asm, GCC 12 loads the weights again for every row, and the loads then take longer
  // than the products.
  static __m512bh Weights(const std::byte* p, int) {
    __m512i weights = _mm512_loadu_si512(p);
    asm("" : "+v"(weights));
    return reinterpret_cast<__m512bh>(weights);
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

// The same as PackF32Activations, with rounding to bf16.
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

__m512bh AsBf16(__m512i v) { return reinterpret_cast<__m512bh>(v); }

// A bf16 cache, with queries and weights rounded to bf16. A multiplication takes pairs of
// dimensions for scores, and pairs of positions for sums of values.
struct BF16DotKv {
  using Elements = __m512i;
  static constexpr KvDType kDType = KvDType::kBF16;
  static constexpr int kPerWord = 2;
  static constexpr int kParts = 1;
  static constexpr int kPositions = 2;
  static constexpr bool kWidens = false;

  static __m512i Part(const std::byte* words, int) { return _mm512_loadu_si512(words); }
  template <int kWide, bool kPart>
  static void Values(const std::byte* p, int64_t stride, IndexRange visible, int count,
                     __m512i* out) {
    if (kWide == 2 && visible.begin <= 0 && visible.end >= 2) {
      const __m512i even = _mm512_loadu_si512(p);
      const __m512i odd = _mm512_loadu_si512(p + stride);
      out[0] = _mm512_permutex2var_epi16(even, PairOrder(0), odd);
      out[kWide - 1] = _mm512_permutex2var_epi16(even, PairOrder(kLanes), odd);
      return;
    }
    // Replaces the values of a position that is not seen by 0: they may be NaN, and 0 times NaN is
    // NaN.
    const __mmask16 lanes = FirstLanes(kPart ? count : kLanes);
    const __mmask16 even_lanes = visible.begin <= 0 ? lanes : __mmask16{0};
    const __mmask16 odd_lanes = visible.end >= 2 ? lanes : __mmask16{0};
    for (int v = 0; v < kWide; ++v, p += 2 * kLanes) {
      const __m256i even = _mm256_maskz_loadu_epi16(even_lanes, p);
      const __m256i odd = _mm256_maskz_loadu_epi16(odd_lanes, p + stride);
      out[v] = _mm512_permutex2var_epi16(_mm512_castsi256_si512(even), PairOrder(0),
                                         _mm512_castsi256_si512(odd));
    }
  }
  static float Factor(float x, float y) {
    const __m128bh pair = _mm_cvtneps_pbh(_mm_setr_ps(x, y, 0.0f, 0.0f));
    return _mm_cvtss_f32(reinterpret_cast<__m128>(pair));
  }
  static void StoreWeights(float* out, const Floats* weights) {
    _mm512_storeu_si512(out,
                        reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(weights[1], weights[0])));
  }
  static __m512i SplatFactor(const float* p) { return _mm512_castps_si512(_mm512_set1_ps(*p)); }
  static Floats Accumulate(Floats sum, __m512i elements, __m512i factor) {
    return _mm512_dpbf16_ps(sum, AsBf16(elements), AsBf16(factor));
  }

 private:
  // The order that interleaves 16-bit words [first, first + 16) of two registers.
  static __m512i PairOrder(int first) {
    const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i even = _mm512_add_epi32(low, _mm512_set1_epi32(first));
    return _mm512_or_si512(even,
                           _mm512_slli_epi32(_mm512_add_epi32(even, _mm512_set1_epi32(32)), 16));
  }
};

constexpr CpuKernels MakeBF16KernelTable() {
  CpuKernels kernels = MakeKernelTable<VnniDot>("avx512_bf16");
  kernels.multiply[static_cast<int>(ProductFormat::kBF16Dot)] = Multiply<BF16DotFormat>;
  kernels.pack_activations[static_cast<int>(ProductFormat::kBF16Dot)] = PackBF16Activations;
  kernels.attend_rounded[static_cast<int>(KvDType::kBF16)] = AttendOf<BF16DotKv>;
  kernels.attend_rounded[static_cast<int>(KvDType::kInt8)] = AttendOf<Int8DotKv>;
  return kernels;
}

}  // namespace

constinit const CpuKernels kAvx512Bf16Kernels = MakeBF16KernelTable();

}  // namespace tandem
