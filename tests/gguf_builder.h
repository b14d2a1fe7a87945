// For tests and fuzz targets: valid and damaged GGUF files.
#ifndef TANDEM_TESTS_GGUF_BUILDER_H_
#define TANDEM_TESTS_GGUF_BUILDER_H_

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem {

// Returns the bytes of a number in this machine's order, which is little-endian.
template <typename Number>
std::string GgufNumber(Number number) {
  std::string bytes(sizeof(Number), '\0');
  std::memcpy(bytes.data(), &number, sizeof(Number));
  return bytes;
}
inline std::string GgufText(std::string_view text) {
  return GgufNumber(uint64_t{text.size()}) + std::string(text);
}

template <typename Number>
std::string GgufNumbers(const std::vector<Number>& numbers) {
  std::string bytes;
  for (const Number number : numbers) bytes += GgufNumber(number);
  return bytes;
}

// Values of keys, preceded by their type.
inline std::string GgufValue(uint32_t kind, const std::string& bytes) {
  return GgufNumber(kind) + bytes;
}
inline std::string GgufUint32(uint32_t number) { return GgufValue(4, GgufNumber(number)); }
inline std::string GgufFloat32(float number) { return GgufValue(6, GgufNumber(number)); }
inline std::string GgufBool(bool value) { return GgufValue(7, GgufNumber(uint8_t{value})); }
inline std::string GgufString(std::string_view text) { return GgufValue(8, GgufText(text)); }
inline std::string GgufArray(uint32_t kind, uint64_t count, const std::string& bytes) {
  return GgufValue(9, GgufNumber(kind) + GgufNumber(count) + bytes);
}
inline std::string GgufStrings(const std::vector<std::string>& texts) {
  std::string bytes;
  for (const std::string& text : texts) bytes += GgufText(text);
  return GgufArray(8, texts.size(), bytes);
}

// A file as a list of keys and a list of tensors. Every part of it can be made wrong.
struct GgufBuilder {
  struct Tensor {
    std::string name;
    std::vector<uint64_t> sizes;  // in file order, the innermost first
    uint32_t type = 0;            // F32
    std::string bytes;
    int64_t offset_change = 0;  // added to the true offset
  };

  std::string magic = "GGUF";
  uint32_t version = 3;
  std::vector<std::pair<std::string, std::string>> keys;
  std::vector<Tensor> tensors;
  uint64_t alignment = 32;
  int64_t num_tensors_change = 0;  // added to the true count
  int64_t num_keys_change = 0;

  // Sets the value of a key. Removes the key if the value is empty.
  void Set(const std::string& key, const std::string& value) {
    for (auto at = keys.begin(); at != keys.end(); ++at) {
      if (at->first != key) continue;
      if (value.empty()) {
        keys.erase(at);
      } else {
        at->second = value;
      }
      return;
    }
    if (!value.empty()) keys.emplace_back(key, value);
  }
  Tensor& Find(std::string_view name) {
    for (Tensor& tensor : tensors) {
      if (tensor.name == name) return tensor;
    }
    std::abort();
  }
  // Adds an F32 tensor of these numbers.
  void AddFloats(const std::string& name, const std::vector<uint64_t>& sizes,
                 const std::vector<float>& numbers) {
    const auto* const bytes = reinterpret_cast<const char*>(numbers.data());
    tensors.push_back({name, sizes, 0, std::string(bytes, numbers.size() * sizeof(float))});
  }

  std::string Bytes() const {
    std::string file = magic + GgufNumber(version) +
                       GgufNumber(static_cast<int64_t>(tensors.size()) + num_tensors_change) +
                       GgufNumber(static_cast<int64_t>(keys.size()) + num_keys_change);
    for (const auto& [key, value] : keys) file += GgufText(key) + value;
    std::string data;
    for (const Tensor& tensor : tensors) {
      file += GgufText(tensor.name) + GgufNumber(static_cast<uint32_t>(tensor.sizes.size()));
      for (const uint64_t size : tensor.sizes) file += GgufNumber(size);
      Align(&data);
      file += GgufNumber(tensor.type) +
              GgufNumber(static_cast<int64_t>(data.size()) + tensor.offset_change);
      data += tensor.bytes;
    }
    Align(&file);
    return file + data;
  }

 private:
  void Align(std::string* bytes) const {
    bytes->resize((bytes->size() + alignment - 1) / alignment * alignment);
  }
};

// The sizes that every model states.
struct GgufSizes {
  uint32_t layers = 1, hidden = 32, feed_forward = 64, context = 512, heads = 2, kv_heads = 1;
};
inline GgufBuilder GgufModel(const std::string& architecture, const GgufSizes& sizes) {
  GgufBuilder file;
  file.Set("general.architecture", GgufString(architecture));
  for (const auto& [key, size] : {std::pair{".block_count", sizes.layers},
                                  {".embedding_length", sizes.hidden},
                                  {".feed_forward_length", sizes.feed_forward},
                                  {".context_length", sizes.context},
                                  {".attention.head_count", sizes.heads},
                                  {".attention.head_count_kv", sizes.kv_heads}}) {
    file.Set(architecture + key, GgufUint32(size));
  }
  file.Set(architecture + ".attention.layer_norm_rms_epsilon", GgufFloat32(1e-5f));
  return file;
}

// Returns a small SentencePiece vocabulary without byte tokens.
inline GgufBuilder PiecesFile() {
  GgufBuilder file;
  file.Set("tokenizer.ggml.model", GgufString("llama"));
  file.Set("tokenizer.ggml.tokens", GgufStrings({"<unk>", "<s>", "</s>", "\u2581", "a", "b", "ab",
                                                 "\u2581a", "<0x0A>", "\u2581\u2581"}));
  file.Set("tokenizer.ggml.scores",
           GgufArray(6, 10, GgufNumbers<float>({0, 0, 0, -1, -1, -1, -2, -3, 0, 0})));
  file.Set("tokenizer.ggml.token_type",
           GgufArray(5, 10, GgufNumbers<int32_t>({2, 3, 3, 1, 1, 1, 1, 1, 6, 4})));
  return file;
}

}  // namespace tandem

#endif  // TANDEM_TESTS_GGUF_BUILDER_H_
