#include "tools/checkpoints/gguf_output.h"

#include <cstring>

#include "checkpoint/gguf_types.h"
#include "kernels/blocks.h"

namespace tandem {
namespace {

constexpr int64_t kAlignment = 32;  // the format's own where no key says otherwise

// Little-endian, as every machine that Tandem runs on is.
template <typename Number>
void Append(Number number, std::string* out) {
  char bytes[sizeof(Number)];
  std::memcpy(bytes, &number, sizeof(Number));
  out->append(bytes, sizeof(Number));
}

void AppendText(std::string_view text, std::string* out) {
  Append<uint64_t>(text.size(), out);
  out->append(text);
}

}  // namespace

void GgufHeader::AddKey(std::string_view key, GgufKind kind) {
  ++num_keys_;
  AppendText(key, &keys_);
  Append(kind, &keys_);
}

void GgufHeader::AddString(std::string_view key, std::string_view value) {
  AddKey(key, GgufKind::kString);
  AppendText(value, &keys_);
}

void GgufHeader::AddUint32(std::string_view key, uint32_t value) {
  AddKey(key, GgufKind::kUint32);
  Append(value, &keys_);
}

void GgufHeader::AddFloat32(std::string_view key, float value) {
  AddKey(key, GgufKind::kFloat32);
  Append(value, &keys_);
}

void GgufHeader::AddBool(std::string_view key, bool value) {
  AddKey(key, GgufKind::kBool);
  Append<uint8_t>(value ? 1 : 0, &keys_);
}

void GgufHeader::AddStrings(std::string_view key, absl::Span<const std::string> values) {
  AddKey(key, GgufKind::kArray);
  Append(GgufKind::kString, &keys_);
  Append<uint64_t>(values.size(), &keys_);
  for (const std::string& value : values) AppendText(value, &keys_);
}

void GgufHeader::AddBools(std::string_view key, const std::vector<bool>& values) {
  AddKey(key, GgufKind::kArray);
  Append(GgufKind::kBool, &keys_);
  Append<uint64_t>(values.size(), &keys_);
  for (const bool value : values) Append<uint8_t>(value ? 1 : 0, &keys_);
}

void GgufHeader::AddFloat32s(std::string_view key, absl::Span<const float> values) {
  AddKey(key, GgufKind::kArray);
  Append(GgufKind::kFloat32, &keys_);
  Append<uint64_t>(values.size(), &keys_);
  for (const float value : values) Append(value, &keys_);
}

void GgufHeader::AddInt32s(std::string_view key, absl::Span<const int32_t> values) {
  AddKey(key, GgufKind::kArray);
  Append(GgufKind::kInt32, &keys_);
  Append<uint64_t>(values.size(), &keys_);
  for (const int32_t value : values) Append(value, &keys_);
}

void GgufHeader::Copy(const GgufFile& file, std::string_view key) {
  ++num_keys_;
  AppendText(key, &keys_);
  keys_ += file.EncodedValue(key);
}

void GgufHeader::AddTensor(std::string_view name, absl::Span<const int64_t> shape, DType dtype) {
  auto bytes = static_cast<int64_t>(RowBytes(dtype, shape.back()));
  for (size_t i = 0; i + 1 < shape.size(); ++i) bytes *= shape[i];
  AddTensor(name, shape, GgufTensorTypeNumber(dtype), bytes);
}

void GgufHeader::AddInt64Tensor(std::string_view name, int64_t size) {
  AddTensor(name, {size}, kGgufInt64Type, static_cast<int64_t>(size * sizeof(int64_t)));
}

void GgufHeader::AddTensor(std::string_view name, absl::Span<const int64_t> shape, uint32_t type,
                           int64_t bytes) {
  ++num_tensors_;
  AppendText(name, &tensors_);
  Append(static_cast<uint32_t>(shape.size()), &tensors_);
  for (size_t i = shape.size(); i-- > 0;) Append<uint64_t>(shape[i], &tensors_);
  Append(type, &tensors_);
  Append<uint64_t>(tensor_bytes_, &tensors_);
  tensor_bytes_ += bytes + static_cast<int64_t>(PaddingAfter(bytes).size());
}

std::string GgufHeader::Bytes() const {
  constexpr uint32_t kVersion = 3;
  std::string bytes = "GGUF";
  Append(kVersion, &bytes);
  Append(num_tensors_, &bytes);
  Append(num_keys_, &bytes);
  bytes += keys_;
  bytes += tensors_;
  return bytes + PaddingAfter(static_cast<int64_t>(bytes.size()));
}

std::string GgufHeader::PaddingAfter(int64_t bytes) {
  return std::string((kAlignment - bytes % kAlignment) % kAlignment, '\0');
}

}  // namespace tandem
