// The numbers that GGUF has for the kinds of its values and the types of its tensors.
#ifndef TANDEM_CHECKPOINT_GGUF_TYPES_H_
#define TANDEM_CHECKPOINT_GGUF_TYPES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "kernels/matrix.h"

namespace tandem {

// Of a key's value.
enum class GgufKind : uint32_t {
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kUint32,
  kInt32,
  kFloat32,
  kBool,
  kString,
  kArray,
  kUint64,
  kInt64,
  kFloat64,
};

inline constexpr uint32_t kNumGgufKinds = 13;

const char* NameOf(GgufKind kind);  // "uint8"
// Bytes of a value; 0 for strings and arrays, which say themselves how long they are.
size_t BytesOf(GgufKind kind);

// A tensor's type.
struct GgufTensorType {
  const char* name = nullptr;  // "Q4_K"; null of a number that has no type, or no longer has one
  std::optional<DType> dtype = std::nullopt;  // if it is one that products can read
  bool is_int64 = false;                      // which ids of tokens can have
};
GgufTensorType GgufTensorTypeOf(uint32_t number);
// REQUIRES: a type has this dtype.
uint32_t GgufTensorTypeNumber(DType dtype);
inline constexpr uint32_t kGgufInt64Type = 27;
// The types that are read: "F32, F16, ...".
std::string AllowedGgufTensorTypes();

}  // namespace tandem

#endif  // TANDEM_CHECKPOINT_GGUF_TYPES_H_
