#include "kernels/number_formats.h"

#include <utility>

#include "absl/types/span.h"
#include "base/check.h"
#include "base/named_values.h"
#include "base/status_macros.h"

namespace tandem {
namespace {

constexpr NamedValues<CpuCompute, 3> kComputes = {
    {{CpuCompute::kAuto, "auto"}, {CpuCompute::kF32, "f32"}, {CpuCompute::kBF16, "bf16"}}};

// kAuto is the first value of both tables, so that it is easily left out.
constexpr NamedValues<Quantization, 16> kQuantizations = {{{Quantization::kAuto, "auto"},
                                                           {Quantization::kNone, "none"},
                                                           {Quantization::kQ8_0, "q8_0"},
                                                           {Quantization::kQ6K, "q6_k"},
                                                           {Quantization::kQ5K, "q5_k"},
                                                           {Quantization::kQ5_1, "q5_1"},
                                                           {Quantization::kQ5_0, "q5_0"},
                                                           {Quantization::kQ4K, "q4_k"},
                                                           {Quantization::kQ4_1, "q4_1"},
                                                           {Quantization::kQ4_0, "q4_0"},
                                                           {Quantization::kIq4Nl, "iq4_nl"},
                                                           {Quantization::kIq4Xs, "iq4_xs"},
                                                           {Quantization::kQ3K, "q3_k"},
                                                           {Quantization::kQ2K, "q2_k"},
                                                           {Quantization::kInt8, "int8"},
                                                           {Quantization::kInt4, "int4"}}};
constexpr NamedValues<KvCacheType, 4> kCacheTypes = {
    {{KvCacheType::kAuto, "auto"},
     {KvCacheType::kF32, NameOf(KvDType::kF32)},
     {KvCacheType::kBF16, NameOf(KvDType::kBF16)},
     {KvCacheType::kInt8, NameOf(KvDType::kInt8)}}};

constexpr std::pair<Quantization, DType> kBlockTypes[] = {
    {Quantization::kQ8_0, DType::kQ8_0},   {Quantization::kQ6K, DType::kQ6K},
    {Quantization::kQ5K, DType::kQ5K},     {Quantization::kQ5_1, DType::kQ5_1},
    {Quantization::kQ5_0, DType::kQ5_0},   {Quantization::kQ4K, DType::kQ4K},
    {Quantization::kQ4_1, DType::kQ4_1},   {Quantization::kQ4_0, DType::kQ4_0},
    {Quantization::kIq4Nl, DType::kIq4Nl}, {Quantization::kIq4Xs, DType::kIq4Xs},
    {Quantization::kQ3K, DType::kQ3K},     {Quantization::kQ2K, DType::kQ2K},
    {Quantization::kInt8, DType::kQ8_0},   {Quantization::kInt4, DType::kQ4K}};

template <typename Table>
auto WithoutAuto(const Table& table) {
  return absl::MakeConstSpan(table).subspan(1);
}

}  // namespace

std::string_view NameOf(CpuCompute compute) { return NameIn(kComputes, compute); }
std::string_view NameOf(Quantization quantization) { return NameIn(kQuantizations, quantization); }
std::string_view NameOf(KvCacheType type) { return NameIn(kCacheTypes, type); }

absl::StatusOr<CpuCompute> ParseCpuCompute(std::string_view name) {
  return ValueOf(kComputes, "compute", name);
}
absl::StatusOr<Quantization> ParseQuantization(std::string_view name) {
  return ValueOf(WithoutAuto(kQuantizations), "quantize", name);
}
absl::StatusOr<Quantization> ParseDraftQuantization(std::string_view name) {
  return ValueOf(kQuantizations, "draft_quantize", name);
}
absl::StatusOr<KvCacheType> ParseKvCacheType(std::string_view name) {
  return ValueOf(kCacheTypes, "kv_cache", name);
}

std::optional<DType> BlockTypeOf(Quantization quantization) {
  for (const auto& [value, dtype] : kBlockTypes) {
    if (value == quantization) return dtype;
  }
  return std::nullopt;
}

KvDType KvDTypeOf(KvCacheType type, KvDType automatic) {
  switch (type) {
    case KvCacheType::kAuto:
      return automatic;
    case KvCacheType::kF32:
      return KvDType::kF32;
    case KvCacheType::kBF16:
      return KvDType::kBF16;
    case KvCacheType::kInt8:
      return KvDType::kInt8;
  }
  TANDEM_CHECK(false);
}

absl::StatusOr<KvDType> ParseKvDType(std::string_view name) {
  ASSIGN_OR_RETURN(const KvCacheType type, ValueOf(WithoutAuto(kCacheTypes), "kv_cache", name));
  return KvDTypeOf(type, /*automatic=*/KvDType::kF32);
}

}  // namespace tandem
