// For tests and fuzz targets: safetensors files of tensors of any dtype.
#ifndef TANDEM_TESTS_SAFETENSORS_BUILDER_H_
#define TANDEM_TESTS_SAFETENSORS_BUILDER_H_

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/float16.h"
#include "model/checkpoint/safetensors.h"

namespace tandem {

// A file's tensors by name. Each can be changed or removed.
class SafetensorsBuilder {
 public:
  struct Tensor {
    std::string dtype;
    std::vector<int64_t> shape;
    std::string data;
  };

  template <typename Number>
  void Add(const std::string& name, const std::string& dtype, std::vector<int64_t> shape,
           const std::vector<Number>& numbers) {
    std::string data(numbers.size() * sizeof(Number), '\0');
    if (!data.empty()) std::memcpy(data.data(), numbers.data(), data.size());
    tensors_[name] = {dtype, std::move(shape), std::move(data)};
  }
  // As F32, F16 or BF16.
  void AddFloats(const std::string& name, const std::string& dtype, std::vector<int64_t> shape,
                 const std::vector<float>& values) {
    if (dtype == "F32") return Add(name, dtype, std::move(shape), values);
    std::vector<uint16_t> bits;
    for (const float value : values) {
      bits.push_back(dtype == "F16" ? FloatToF16(value) : FloatToBf16(value));
    }
    Add(name, dtype, std::move(shape), bits);
  }

  Tensor& operator[](const std::string& name) { return tensors_[name]; }
  const std::map<std::string, Tensor>& tensors() const { return tensors_; }
  void Remove(const std::string& name) { tensors_.erase(name); }
  void Merge(const SafetensorsBuilder& other) {
    for (const auto& [name, tensor] : other.tensors_) tensors_[name] = tensor;
  }

  std::string Bytes() const {
    std::vector<TensorHeader> headers;
    for (const auto& [name, tensor] : tensors_) {
      headers.push_back({.name = name,
                         .dtype = tensor.dtype,
                         .shape = tensor.shape,
                         .bytes = static_cast<int64_t>(tensor.data.size())});
    }
    std::string bytes = SafetensorsHeader(headers);
    for (const auto& [name, tensor] : tensors_) bytes += tensor.data;
    return bytes;
  }

 private:
  std::map<std::string, Tensor> tensors_;
};

}  // namespace tandem

#endif  // TANDEM_TESTS_SAFETENSORS_BUILDER_H_
