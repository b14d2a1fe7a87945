// How an engine rounds activations, and how it stores weights and caches.
#ifndef TANDEM_INCLUDE_TANDEM_NUMBER_FORMATS_H_
#define TANDEM_INCLUDE_TANDEM_NUMBER_FORMATS_H_

#include <string_view>

#include "absl/status/statusor.h"

namespace tandem {

// How the CPU rounds activations in products with bf16 weights, and queries and softmax weights in
// attention over caches of bf16 and int8.
enum class CpuCompute {
  kAuto,  // rounds where the CPU has instructions for it: to bf16, or to 16 bits for an int8 cache
  kF32,   // keeps activations exact
  kBF16,  // rounds activations to bf16 and uses the CPU's bf16 dot product, which it requires
};

// The format to which weights are quantised at load (docs/quantization.md).
enum class Quantization {
  kAuto,  // only for drafts: kInt4 if that is expected to pay off, else kNone
  kNone,
  kQ8_0,
  kQ6K,
  kQ5K,
  kQ5_1,
  kQ5_0,
  kQ4K,
  kQ4_1,
  kQ4_0,
  kIq4Nl,
  kIq4Xs,
  kQ3K,
  kQ2K,
  kInt8,  // the best format of 8 bits
  kInt4,  // the best format of 4 bits
};

// The type of a cache's elements (docs/kv_cache.md).
enum class KvCacheType {
  kAuto,  // kBF16 on a CUDA device, kF32 on a CPU
  kF32,
  kBF16,
  kInt8,  // with a scale for each token and head
};

// The names of options: "auto", "none", "f32", "q8_0", "iq4_nl".
std::string_view NameOf(CpuCompute compute);
std::string_view NameOf(Quantization quantization);
std::string_view NameOf(KvCacheType type);
// INVALID_ARGUMENT naming the field `compute`, `quantize`, `draft_quantize` or `kv_cache` for other
// names. Only ParseDraftQuantization accepts Quantization::kAuto.
absl::StatusOr<CpuCompute> ParseCpuCompute(std::string_view name);
absl::StatusOr<Quantization> ParseQuantization(std::string_view name);
absl::StatusOr<Quantization> ParseDraftQuantization(std::string_view name);
absl::StatusOr<KvCacheType> ParseKvCacheType(std::string_view name);

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_NUMBER_FORMATS_H_
