// Each function is compiled for the instruction set that it uses, so all of them can be in one
// file. Only functions that this machine can run are called.
#include <immintrin.h>

#include "base/check.h"
#include "kernels/cpu/isa/x86_features.h"
#include "kernels/peak.h"

namespace tandem {
namespace {

// Independent sums: at least the instructions' latency (4 to 6 cycles) times their throughput (2 a
// cycle), and few enough for the registers.
constexpr int kChains = 12;

// Empty instructions that might change `sum`, which keep the compiler from merging steps.
#define TANDEM_KEEP(sum) asm volatile("" : "+x"(sum))
#define TANDEM_KEEP_WIDE(sum) asm volatile("" : "+v"(sum))

int64_t RunF32Sse(int64_t steps) {
  __m128 sums[kChains] = {};
  const __m128 x = _mm_set1_ps(1.0f);
  for (int64_t step = 0; step < steps; ++step) {
    for (__m128& sum : sums) {
      sum = _mm_add_ps(sum, _mm_mul_ps(x, x));
      TANDEM_KEEP(sum);
    }
  }
  return steps * kChains * 4;
}

__attribute__((target("avx2,fma"))) int64_t RunF32Avx2(int64_t steps) {
  __m256 sums[kChains] = {};
  const __m256 x = _mm256_set1_ps(1.0f);
  for (int64_t step = 0; step < steps; ++step) {
    for (__m256& sum : sums) {
      sum = _mm256_fmadd_ps(x, x, sum);
      TANDEM_KEEP(sum);
    }
  }
  return steps * kChains * 8;
}

__attribute__((target("avx512f"))) int64_t RunF32Avx512(int64_t steps) {
  __m512 sums[kChains] = {};
  const __m512 x = _mm512_set1_ps(1.0f);
  for (int64_t step = 0; step < steps; ++step) {
    for (__m512& sum : sums) {
      sum = _mm512_fmadd_ps(x, x, sum);
      TANDEM_KEEP_WIDE(sum);
    }
  }
  return steps * kChains * 16;
}

__attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16"))) int64_t RunBF16Avx512(
    int64_t steps) {
  __m512 sums[kChains] = {};
  const auto x = reinterpret_cast<__m512bh>(_mm512_set1_epi16(0x3F80));  // 1
  for (int64_t step = 0; step < steps; ++step) {
    for (__m512& sum : sums) {
      sum = _mm512_dpbf16_ps(sum, x, x);
      TANDEM_KEEP_WIDE(sum);
    }
  }
  return steps * kChains * 32;
}

__attribute__((target("avx512f,avx512bw,avx512vnni"))) int64_t RunInt8Avx512(int64_t steps) {
  __m512i sums[kChains] = {};
  const __m512i x = _mm512_set1_epi8(1);
  for (int64_t step = 0; step < steps; ++step) {
    for (__m512i& sum : sums) {
      sum = _mm512_dpbusd_epi32(sum, x, x);
      TANDEM_KEEP_WIDE(sum);
    }
  }
  return steps * kChains * 64;
}

__attribute__((target("avx2,avxvnni"))) int64_t RunInt8Avx2(int64_t steps) {
  __m256i sums[kChains] = {};
  const __m256i x = _mm256_set1_epi8(1);
  for (int64_t step = 0; step < steps; ++step) {
    for (__m256i& sum : sums) {
      sum = _mm256_dpbusd_avx_epi32(sum, x, x);
      TANDEM_KEEP(sum);
    }
  }
  return steps * kChains * 32;
}

}  // namespace

int64_t RunMultiplyAdds(DotInput input, int64_t steps) {
  TANDEM_CHECK(steps >= 1);
  __builtin_cpu_init();
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl");
  switch (input) {
    case DotInput::kF32:
      if (avx512) return RunF32Avx512(steps);
      if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return RunF32Avx2(steps);
      return RunF32Sse(steps);
    case DotInput::kBF16:
      return avx512 && __builtin_cpu_supports("avx512bf16") ? RunBF16Avx512(steps) : 0;
    case DotInput::kInt8:
      if (avx512 && __builtin_cpu_supports("avx512vnni")) return RunInt8Avx512(steps);
      return __builtin_cpu_supports("avx2") && HasAvxVnni() ? RunInt8Avx2(steps) : 0;
  }
  return 0;
}

}  // namespace tandem
