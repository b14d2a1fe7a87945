// GGUF, the file format of llama.cpp: "GGUF", a version, the numbers of tensors and of keys; the
// keys with their values; the tensors' names, shapes and types; then the tensors' bytes. A model
// may be split into several such files. Format:
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#ifndef TANDEM_MODEL_CHECKPOINT_GGUF_H_
#define TANDEM_MODEL_CHECKPOINT_GGUF_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/hash_map.h"
#include "base/mapped_file.h"
#include "base/string_view.h"
#include "kernels/matrix.h"

namespace tandem {

// The type of a key's value.
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
// Returns the size of a value in bytes; 0 for strings and arrays, which store their own length.
size_t BytesOf(GgufKind kind);

// A tensor's type.
struct GgufTensorType {
  const char* name = nullptr;  // "Q4_K"; null for a number that is unused or obsolete
  std::optional<DType> dtype = std::nullopt;  // if matrix products can read it
  bool is_int64 = false;                      // the type of token ids
};
GgufTensorType GgufTensorTypeOf(uint32_t number);
// REQUIRES: a type has this dtype.
uint32_t GgufTensorTypeNumber(DType dtype);
inline constexpr uint32_t kGgufInt64Type = 27;
// Returns the names of the supported types: "F32, F16, ...".
std::string AllowedGgufTensorTypes();

struct GgufTensor {
  std::string name;
  std::vector<int64_t> shape;  // 1 to 4 sizes from 1; innermost last (the file has it first)
  DType dtype = DType::kF32;
  bool is_int64 = false;              // int64 elements; `dtype` is meaningless
  absl::Span<const std::byte> bytes;  // in the file; not necessarily aligned to the element
  const std::string* path = nullptr;  // the file that holds it
};

// A GGUF model: one file, or the parts of a split one, memory-mapped. Open checks everything that
// it reads, which is only the keys and the tensors' descriptions. Thread-safe.
class GgufFile {
 public:
  // `path` is a file, or the first part ("x-00001-of-00003.gguf") of a split model, with the other
  // parts in the same folder. Returns INVALID_ARGUMENT or NOT_FOUND, naming the file, the key or
  // tensor, the value found and the values allowed.
  static absl::StatusOr<std::unique_ptr<GgufFile>> Open(const std::string& path);
  // The same from the bytes of one file, which must outlive the result; `name` is for messages.
  // With `may_end_early` the file may be cut off before a tensor's bytes, because it is still to be
  // written; such a tensor has empty bytes.
  static absl::StatusOr<std::unique_ptr<GgufFile>> Parse(absl::Span<const std::byte> bytes,
                                                         const std::string& name,
                                                         bool may_end_early = false);

  // The path of the file, or of the first part.
  const std::string& path() const { return path_; }
  std::vector<std::string> files() const;  // the parts, in order
  // In the order of the files.
  const std::vector<GgufTensor>& tensors() const { return tensors_; }

  bool Has(std::string_view key) const { return values_.contains(View(key)); }
  // These return the value of a key: NOT_FOUND if the key is absent, INVALID_ARGUMENT if the value
  // is of another type or out of range. Strings live as long as this object, and are bytes: not
  // necessarily UTF-8.
  absl::StatusOr<std::string_view> GetString(std::string_view key) const;
  // An integer of any type within [least, most]. Here and below, an array of `num_equal` equal
  // numbers counts as one.
  absl::StatusOr<int64_t> GetInteger(std::string_view key, int64_t least, int64_t most,
                                     uint64_t num_equal = 0) const;
  // A finite number of any type.
  absl::StatusOr<double> GetNumber(std::string_view key, uint64_t num_equal = 0) const;
  absl::StatusOr<bool> GetBool(std::string_view key) const;
  bool IsArray(std::string_view key) const;  // false if the key is absent
  absl::StatusOr<std::vector<std::string_view>> GetStrings(std::string_view key) const;
  // Finite numbers of any floating-point type.
  absl::StatusOr<std::vector<float>> GetFloats(std::string_view key) const;
  // Integers of any type. INVALID_ARGUMENT unless every element fits int32.
  absl::StatusOr<std::vector<int32_t>> GetIntegers(std::string_view key) const;
  // Bools, or integers as in GetIntegers, where 0 is false.
  absl::StatusOr<std::vector<bool>> GetBools(std::string_view key) const;
  std::vector<std::string> keys() const;  // sorted
  // Returns a key's value as a file stores it, after its kind. REQUIRES: Has(key).
  std::string EncodedValue(std::string_view key) const;

 private:
  // A value as the file stores it: `bytes` excludes the type, and for an array holds its elements.
  struct Value {
    GgufKind kind{};
    GgufKind element_kind{};  // for arrays
    uint64_t count = 1;       // elements of an array
    absl::Span<const std::byte> bytes;
  };
  class Reader;

  GgufFile() = default;
  // Opens one file, without the other parts of a split model.
  static absl::StatusOr<std::unique_ptr<GgufFile>> OpenOne(const std::string& path);
  absl::Status AddPart(const std::string& path, int part, int64_t num_parts);
  absl::Status CheckParts() const;
  absl::Status Wrong(std::string_view key, absl::string_view found,
                     absl::string_view allowed) const;
  absl::Status InvalidValue(std::string_view key, const Value& value,
                            absl::string_view allowed) const;
  absl::StatusOr<const Value*> Find(std::string_view key, absl::string_view allowed) const;
  // Returns the value itself, or an element of an array of `num_equal` equal numbers.
  static Value ScalarIn(const Value& value, uint64_t num_equal);
  static bool IsArrayOf(const Value& value, absl::Span<const GgufKind> kinds);

  std::string path_;
  std::vector<std::unique_ptr<const std::string>> paths_;
  std::vector<MappedFile> files_;
  HashMap<std::string, Value> values_;
  std::vector<GgufTensor> tensors_;
};

// Returns whether `path` is a GGUF file: its first four bytes are "GGUF", or its name ends in
// ".gguf".
bool IsGguf(const std::string& path);

// Returns the GGUF file that a model's path means (for a split model its first part): `path`
// itself, or, if `path` is a folder without a config.json, the only GGUF model in it. Empty if
// there is none. INVALID_ARGUMENT if a folder holds several, or if its name ends in ".gguf" and it
// holds none.
absl::StatusOr<std::string> GgufIn(const std::string& path);
// Returns the only GGUF model in a folder; empty if there is none. INVALID_ARGUMENT if there are
// several.
absl::StatusOr<std::string> OnlyGgufIn(const std::string& folder);

}  // namespace tandem

#endif  // TANDEM_MODEL_CHECKPOINT_GGUF_H_
