#include "tools/checkpoints/gguf_output.h"

#include <cstring>
#include <iterator>

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

template <typename Number>
void AppendValue(Number number, std::string* out) {
  Append(number, out);
}
void AppendValue(bool value, std::string* out) { Append<uint8_t>(value ? 1 : 0, out); }
void AppendValue(const std::string& text, std::string* out) { AppendText(text, out); }
template <typename Element>
void AppendValue(const std::vector<Element>& elements, std::string* out) {
  Append<uint64_t>(elements.size(), out);
  for (const auto& element : elements) AppendValue(static_cast<const Element&>(element), out);
}

}  // namespace

void GgufHeader::Add(std::string_view key, const GgufValue& value) {
  constexpr GgufKind kKinds[] = {GgufKind::kUint32, GgufKind::kFloat32, GgufKind::kBool,
                                 GgufKind::kString};
  constexpr GgufKind kElementKinds[] = {GgufKind::kInt32, GgufKind::kFloat32, GgufKind::kBool,
                                        GgufKind::kString};
  const bool is_array = value.index() >= std::size(kKinds);
  ++num_keys_;
  AppendText(key, &keys_);
  Append(is_array ? GgufKind::kArray : kKinds[value.index()], &keys_);
  if (is_array) Append(kElementKinds[value.index() - std::size(kKinds)], &keys_);
  std::visit([&](const auto& v) { AppendValue(v, &keys_); }, value);
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
