#include "checkpoint/gguf_types.h"

#include <iterator>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace tandem {
namespace {

struct Kind {
  const char* name;
  size_t bytes;
};
// By number.
constexpr Kind kKinds[] = {{"uint8", 1},  {"int8", 1},  {"uint16", 2},  {"int16", 2},
                           {"uint32", 4}, {"int32", 4}, {"float32", 4}, {"bool", 1},
                           {"string", 0}, {"array", 0}, {"uint64", 8},  {"int64", 8},
                           {"float64", 8}};

// By number. Reference: enum ggml_type of ggml.h; the numbers without a name were formats of its
// past.
constexpr GgufTensorType kTypes[] = {
    {"F32", DType::kF32},
    {"F16", DType::kF16},
    {"Q4_0", DType::kQ4_0},
    {"Q4_1", DType::kQ4_1},
    {},
    {},
    {"Q5_0", DType::kQ5_0},
    {"Q5_1", DType::kQ5_1},
    {"Q8_0", DType::kQ8_0},
    {"Q8_1"},
    {"Q2_K", DType::kQ2K},
    {"Q3_K", DType::kQ3K},
    {"Q4_K", DType::kQ4K},
    {"Q5_K", DType::kQ5K},
    {"Q6_K", DType::kQ6K},
    {"Q8_K"},
    {"IQ2_XXS"},
    {"IQ2_XS"},
    {"IQ3_XXS"},
    {"IQ1_S"},
    {"IQ4_NL", DType::kIq4Nl},
    {"IQ3_S"},
    {"IQ2_S"},
    {"IQ4_XS", DType::kIq4Xs},
    {"I8"},
    {"I16"},
    {"I32"},
    {"I64", std::nullopt, /*is_int64=*/true},
    {"F64"},
    {"IQ1_M"},
    {"BF16", DType::kBF16},
    {},
    {},
    {},
    {"TQ1_0"},
    {"TQ2_0"},
    {},
    {},
    {},
    {"MXFP4"},
};

static_assert(std::size(kKinds) == kNumGgufKinds && kTypes[kGgufInt64Type].is_int64);

}  // namespace

const char* NameOf(GgufKind kind) { return kKinds[static_cast<uint32_t>(kind)].name; }
size_t BytesOf(GgufKind kind) { return kKinds[static_cast<uint32_t>(kind)].bytes; }

GgufTensorType GgufTensorTypeOf(uint32_t number) {
  return number < std::size(kTypes) ? kTypes[number] : GgufTensorType{};
}

uint32_t GgufTensorTypeNumber(DType dtype) {
  for (uint32_t number = 0; number < std::size(kTypes); ++number) {
    if (kTypes[number].dtype == dtype) return number;
  }
  TANDEM_CHECK(false);
}

std::string AllowedGgufTensorTypes() {
  std::string names;
  for (const GgufTensorType& type : kTypes) {
    if (type.dtype.has_value() || type.is_int64)
      absl::StrAppend(&names, names.empty() ? "" : ", ", type.name);
  }
  return names;
}

}  // namespace tandem
