// Reads a "quantization_config" and the tensors of a module, mostly nearly right ones. They must be
// refused with the name of the file, or give a matrix whose two forms have the same weights, bit
// for bit.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kernels/blocks.h"
#include "model/checkpoint/quantization_config.h"
#include "model/checkpoint/quantized_weights.h"
#include "tests/fuzzing.h"
#include "tests/json_mutator.h"

namespace tandem {
namespace {

using Json = tandem::SortedJson;

constexpr size_t kMaxBytes = 1 << 16;

// "tensors": each has a dtype, a shape, and perhaps integers that its data repeats; other data is
// noise.
const std::vector<Json>& Samples() {
  static const auto& samples = *new std::vector<Json>(ParseAll({
      R"({"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": false,
            "desc_act": true, "checkpoint_format": "gptq", "damp_percent": 0.01},
          "tensors": {"m.qweight": {"dtype": "I32", "shape": [8, 16]},
            "m.qzeros": {"dtype": "I32", "shape": [2, 2]},
            "m.scales": {"dtype": "F16", "shape": [2, 16]},
            "m.g_idx": {"dtype": "I32", "shape": [64], "values": [0, 1, 1, 0, 1]}}})",
      R"({"quantization_config": {"quant_method": "gptq", "bits": 3, "group_size": -1, "sym": true,
            "format": "gptq_v2", "dynamic": {"-:lm_head": {}}},
          "tensors": {"m.qweight": {"dtype": "I32", "shape": [6, 8]},
            "m.qzeros": {"dtype": "I32", "shape": [1, 1]},
            "m.scales": {"dtype": "BF16", "shape": [1, 8]},
            "m.bias": {"dtype": "F16", "shape": [8]}}})",
      R"({"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 32,
            "zero_point": true, "version": "gemm", "modules_to_not_convert": ["lm_head"]},
          "tensors": {"m.qweight": {"dtype": "I32", "shape": [64, 9]},
            "m.qzeros": {"dtype": "I32", "shape": [2, 9]},
            "m.scales": {"dtype": "F16", "shape": [2, 72]}}})",
      R"({"quantization_config": {"quant_method": "compressed-tensors", "format": "pack-quantized",
            "quantization_status": "compressed", "ignore": ["lm_head"],
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4,
              "type": "int", "symmetric": false, "strategy": "group", "group_size": 32,
              "actorder": "group", "dynamic": false}}}},
          "tensors": {"m.weight_packed": {"dtype": "I32", "shape": [70, 8]},
            "m.weight_shape": {"dtype": "I64", "shape": [2], "values": [70, 64]},
            "m.weight_scale": {"dtype": "BF16", "shape": [70, 2]},
            "m.weight_zero_point": {"dtype": "I32", "shape": [9, 2]},
            "m.weight_g_idx": {"dtype": "I32", "shape": [64], "values": [1, 0]}}})",
      R"({"quantization_config": {"quant_method": "compressed-tensors", "format": "int-quantized",
            "config_groups": {"group_0": {"weights": {"num_bits": 8, "strategy": "channel"}}}},
          "tensors": {"m.weight": {"dtype": "I8", "shape": [5, 64]},
            "m.weight_scale": {"dtype": "F32", "shape": [5, 1]},
            "m.weight_zero_point": {"dtype": "I8", "shape": [5, 1], "values": [0]},
            "m.input_scale": {"dtype": "F32", "shape": []}}})",
      R"({"quantization_config": {"quant_method": "fp8", "fmt": "e4m3",
            "activation_scheme": "dynamic", "weight_block_size": [16, 16]},
          "tensors": {"m.weight": {"dtype": "F8_E4M3", "shape": [20, 40]},
            "m.weight_scale_inv": {"dtype": "BF16", "shape": [2, 3]}}})",
      R"({"text_config": {"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP8"}},
          "tensors": {"m.weight": {"dtype": "F8_E4M3", "shape": [3, 3]},
            "m.weight_scale": {"dtype": "F32", "shape": []}}})"}));
  return samples;
}

// Returns the bytes of the tensors, and adds their descriptions to `*entries`. Skips tensors that
// no file could hold.
std::vector<std::string> MakeTensors(const Json& tensors, std::vector<SafetensorsEntry>* entries) {
  std::vector<std::string> data;
  size_t left = kMaxBytes;
  uint32_t noise = 1;
  if (!tensors.is_object()) return data;
  for (const auto& [name, tensor] : tensors.items()) {
    if (!tensor.is_object() || !tensor.contains("dtype") || !tensor.contains("shape")) continue;
    const SafetensorsDType* const dtype =
        FindSafetensorsDType(tensor["dtype"].is_string() ? tensor["dtype"].get<std::string>() : "");
    const Json& shape = tensor["shape"];
    if (dtype == nullptr || !shape.is_array()) continue;
    const size_t element = dtype->bytes;
    SafetensorsEntry entry{.name = name,
                           .dtype_name = dtype->name,
                           .dtype = dtype->dtype,
                           .shape = {},
                           .num_elements = 1,
                           .bytes = {}};
    bool fits = true;
    for (const Json& size : shape) {
      fits = fits && size.is_number_unsigned() && size.get<uint64_t>() < kMaxBytes;
      if (!fits) break;
      entry.shape.push_back(size.get<int64_t>());
      entry.num_elements *= entry.shape.back();
      fits = entry.num_elements * element <= left;
    }
    if (!fits) continue;
    left -= entry.num_elements * element;
    std::string bytes(entry.num_elements * element, '\0');
    const Json values = tensor.value("values", Json::array());
    for (int64_t i = 0; i < entry.num_elements; ++i) {
      int64_t value = noise = noise * 1664525 + 1013904223;
      if (values.is_array() && !values.empty()) {
        const Json& given = values[i % values.size()];
        value = given.is_number_integer() ? given.get<int64_t>() : 0;
      } else if (element == 2) {
        value = (value >> 8 & 0x0FFF) | 0x2000;  // no NaN
      } else if (entry.dtype == DType::kF32) {
        value = (value & 0x00FFFFFF) | 0x3C000000;
      }
      std::memcpy(bytes.data() + i * element, &value, element);
    }
    data.push_back(std::move(bytes));
    entries->push_back(std::move(entry));
  }
  for (size_t i = 0; i < data.size(); ++i) {
    (*entries)[i].bytes = {reinterpret_cast<const std::byte*>(data[i].data()), data[i].size()};
  }
  return data;
}

std::vector<float> Widened(const Weights& weights, const std::string& name, int64_t rows,
                           int64_t cols) {
  const ConstMatrixView view = *weights.Get(name, {rows, cols});
  std::vector<float> values(rows * cols);
  for (int64_t r = 0; r < rows; ++r) {
    WidenRow(static_cast<const std::byte*>(view.data) + r * RowBytes(view.dtype, cols), view.dtype,
             static_cast<int>(cols), values.data() + r * cols);
  }
  return values;
}

// Returns whether there was a matrix.
bool FuzzOne(const Json& document) {
  if (!document.is_object()) return false;
  const auto config = ParseQuantization(document, "fuzz");
  if (!config.ok()) {
    CheckRefusal(config.status());
    return false;
  }
  if (!config->has_value()) return false;
  std::vector<SafetensorsEntry> entries;
  const std::vector<std::string> data =
      MakeTensors(document.value("tensors", Json::object()), &entries);
  std::unique_ptr<Weights> forms[2];
  for (const QuantizedForm form : {QuantizedForm::kBlocks, QuantizedForm::kFloats}) {
    auto stored = std::make_unique<StoredWeights>();
    TANDEM_CHECK(stored->AddEntries(entries, "fuzz").ok());
    auto weights = OpenQuantizedWeights(std::move(stored), **config, form, {});
    if (!weights.ok()) {
      CheckRefusal(weights.status());
      return false;
    }
    forms[static_cast<int>(form)] = *std::move(weights);
  }
  bool has_matrix = false;
  TANDEM_CHECK(forms[0]->names() == forms[1]->names());
  for (const std::string& name : forms[0]->names()) {
    TANDEM_CHECK(forms[0]->Has(name));
    if (!forms[0]->IsMade(name)) continue;
    // Exactly one shape with this number of elements is the matrix's.
    const int64_t elements = forms[0]->num_elements(name);
    int num_shapes = 0;
    for (int64_t rows = 1; rows <= elements; ++rows) {
      if (elements % rows != 0 || !forms[0]->Describe(name, {rows, elements / rows}).ok()) continue;
      ++num_shapes;
      const std::vector<float> kept = Widened(*forms[0], name, rows, elements / rows);
      const std::vector<float> floats = Widened(*forms[1], name, rows, elements / rows);
      for (int64_t i = 0; i < elements; ++i) {
        TANDEM_CHECK(kept[i] == floats[i] || (std::isnan(kept[i]) && std::isnan(floats[i])));
      }
    }
    TANDEM_CHECK(num_shapes == 1);
    has_matrix = true;
  }
  return has_matrix;
}

}  // namespace
}  // namespace tandem

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  tandem::JsonMutator mutator(tandem::Samples(), seed);
  return mutator.MutateText(data, size, max_size);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const bool checked = [] {
    for (const auto& sample : tandem::Samples()) TANDEM_CHECK(tandem::FuzzOne(sample));
    return true;
  }();
  (void)checked;
  const auto document = tandem::SortedJson::parse(data, data + size, nullptr, false);
  if (!document.is_discarded()) tandem::FuzzOne(document);
  return 0;
}
