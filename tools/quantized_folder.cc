#include "tools/quantized_folder.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/mapped_file.h"
#include "base/process_limits.h"
#include "base/status_macros.h"
#include "base/thread_pool.h"
#include "kernels/quantize.h"
#include "kernels/widen_row.h"
#include "model/formats/gguf.h"
#include "model/formats/json_text.h"
#include "model/formats/weights.h"
#include "model/model_config.h"
#include "nlohmann/json.hpp"
#include "tools/model_tensors.h"
#include "tools/output_folder.h"
#include "tools/safetensors_header.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr char kConfig[] = "config.json";

// A tensor of the new file: one of the source, whole numbers made of one, or, right behind those,
// their scales.
struct Output {
  TensorHeader header = {};
  ConstMatrixView source = {};
  DType quantized = DType::kF32;  // kF32: copied
  bool is_scale = false;
};

// The outputs of one tensor, in the order of their names.
void AddOutputs(const TensorSpec& tensor, ConstMatrixView source, DType quantized,
                std::vector<Output>* outputs) {
  if (tensor.role != TensorRole::kMatrix) {
    outputs->push_back(
        {.header = {.name = tensor.name,
                    .dtype = SafetensorsName(source.dtype),
                    .shape = tensor.shape,
                    .bytes = tensor.num_elements() * static_cast<int64_t>(SizeOf(source.dtype))},
         .source = source});
    return;
  }
  const int64_t rows = tensor.shape[0];
  const int64_t row_bytes = static_cast<int64_t>(QuantizedBytes(quantized, source.cols));
  const int64_t groups = QuantizationGroups(source.cols);
  outputs->push_back({.header = {.name = tensor.name,
                                 .dtype = SafetensorsName(quantized),
                                 .shape = {rows, row_bytes},
                                 .bytes = rows * row_bytes},
                      .source = source,
                      .quantized = quantized});
  outputs->push_back({.header = {.name = absl::StrCat(tensor.name, "_scale"),
                                 .dtype = SafetensorsName(DType::kF32),
                                 .shape = {rows, groups},
                                 .bytes = rows * groups * static_cast<int64_t>(sizeof(float))},
                      .source = source,
                      .quantized = quantized,
                      .is_scale = true});
}

// What quantising rows makes.
struct QuantizedRows {
  std::vector<std::byte> bytes;
  std::vector<float> scales;
};

// Of rows [first, first + count) of a matrix.
QuantizedRows QuantizeRows(ConstMatrixView source, DType dtype, int first, int count,
                           ThreadPool* pool) {
  const size_t row_bytes = QuantizedBytes(dtype, source.cols);
  const int groups = QuantizationGroups(source.cols);
  QuantizedRows result;
  result.bytes.resize(row_bytes * count);
  result.scales.resize(static_cast<size_t>(groups) * count);
  pool->Run([&](int thread) {
    const Share share = ShareOf(count, pool->num_threads(), thread);
    float weights[kQuantizationGroup];
    for (int64_t r = share.begin; r < share.end; ++r) {
      const auto* row = static_cast<const std::byte*>(source.data) +
                        (first + r) * source.stride * static_cast<int64_t>(SizeOf(source.dtype));
      for (int group = 0; group < groups; ++group) {
        const int k = group * kQuantizationGroup;
        const int size = std::min(kQuantizationGroup, source.cols - k);
        WidenRow(row + k * SizeOf(source.dtype), source.dtype, size, weights);
        QuantizeGroup(weights, size, dtype, &result.bytes[r * row_bytes + QuantizedBytes(dtype, k)],
                      &result.scales[r * groups + group]);
      }
    }
  });
  return result;
}

// Writes one output; `scales` holds those of the matrix written last.
absl::Status WriteOutput(const Output& output, ThreadPool* pool, std::vector<float>* scales,
                         OutputFile* file, absl::FunctionRef<void(int64_t written)> on_bytes) {
  const auto write = [&](const void* data, size_t size) -> absl::Status {
    RETURN_IF_ERROR(file->Write({static_cast<const char*>(data), size}));
    on_bytes(static_cast<int64_t>(size));
    return absl::OkStatus();
  };
  if (output.quantized == DType::kF32) return write(output.source.data, output.header.bytes);
  if (output.is_scale) return write(scales->data(), scales->size() * sizeof(float));
  constexpr int kRowsAtATime = 1024;
  scales->clear();
  for (int first = 0; first < output.source.rows; first += kRowsAtATime) {
    const int count = std::min(kRowsAtATime, output.source.rows - first);
    const QuantizedRows rows = QuantizeRows(output.source, output.quantized, first, count, pool);
    scales->insert(scales->end(), rows.scales.begin(), rows.scales.end());
    RETURN_IF_ERROR(write(rows.bytes.data(), rows.bytes.size()));
  }
  return absl::OkStatus();
}

// Everything beside the weights, with the configuration saying what became of them.
absl::Status CopyOtherFiles(const std::string& source, DType dtype, OutputFolder* folder) {
  std::error_code error;
  std::error_code ignored;
  for (fs::directory_iterator entry(source, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    const std::string path = entry->path().string();
    const std::string name = entry->path().filename().string();
    if (!entry->is_regular_file(ignored) || absl::StrContains(name, ".safetensors")) continue;
    ASSIGN_OR_RETURN(std::string text, ReadFile(path));
    if (name == kConfig) {
      ASSIGN_OR_RETURN(nlohmann::json config, ParseJson(text, path));
      config["quantization_config"] = {{"quant_method", "tandem"},
                                       {"bits", static_cast<int>(BitsOf(dtype))},
                                       {"group_size", kQuantizationGroup}};
      text = absl::StrCat(config.dump(1), "\n");
    }
    ASSIGN_OR_RETURN(OutputFile file, folder->NewFile(name));
    RETURN_IF_ERROR(file.Write(text));
    RETURN_IF_ERROR(file.Close());
  }
  if (error) return absl::UnavailableError(absl::StrCat(source, ": ", error.message()));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<QuantizedFolder> WriteQuantizedFolder(
    const std::string& source, DType dtype, const std::string& out,
    absl::FunctionRef<void(int64_t, int64_t)> on_bytes) {
  ASSIGN_OR_RETURN(const std::string gguf, GgufIn(source));
  if (!gguf.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(gguf, ": found a GGUF model, allowed: a Hugging Face folder"));
  }
  ASSIGN_OR_RETURN(const ModelConfig config, ReadModelConfig(source));
  if (config.quantized.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(source, "/config.json: quantised to ",
                                                   NameOf(*config.quantized),
                                                   " already, allowed: a model of floats"));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<Weights> weights, Weights::Open(source));
  QuantizedFolder result;
  std::vector<Output> outputs;
  for (const TensorSpec& tensor : TensorsOf(config)) {
    ASSIGN_OR_RETURN(const ConstMatrixView view, weights->Get(tensor.name, tensor.shape));
    const bool is_head = tensor.name == "lm_head.weight";
    AddOutputs(tensor, view, is_head ? DType::kInt8 : dtype, &outputs);
    result.bytes_before += tensor.num_elements() * static_cast<int64_t>(SizeOf(view.dtype));
    result.num_quantized += tensor.role == TensorRole::kMatrix ? 1 : 0;
  }
  std::vector<TensorHeader> headers;
  for (const Output& output : outputs) {
    headers.push_back(output.header);
    result.bytes_after += output.header.bytes;
  }
  ASSIGN_OR_RETURN(OutputFolder folder, OutputFolder::Create(out));
  RETURN_IF_ERROR(folder.CheckFreeSpace(result.bytes_after));
  ASSIGN_OR_RETURN(OutputFile file, folder.NewFile("model.safetensors"));
  RETURN_IF_ERROR(file.Write(SafetensorsHeader(headers)));
  ThreadPool pool(NumUsableCores());
  std::vector<float> scales;
  for (const Output& output : outputs) {
    RETURN_IF_ERROR(WriteOutput(output, &pool, &scales, &file,
                                [&](int64_t written) { on_bytes(written, result.bytes_after); }));
  }
  RETURN_IF_ERROR(file.Close());
  RETURN_IF_ERROR(CopyOtherFiles(source, dtype, &folder));
  folder.Keep();
  return result;
}

}  // namespace tandem
