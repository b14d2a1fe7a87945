#include "tools/checkpoints/quantized_model.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/check.h"
#include "base/json/json_text.h"
#include "base/mapped_file.h"
#include "base/output_folder.h"
#include "base/process_limits.h"
#include "base/status_macros.h"
#include "base/thread_pool.h"
#include "kernels/blocks.h"
#include "kernels/quantize.h"
#include "model/checkpoint/gguf.h"
#include "model/checkpoint/gguf_weights.h"
#include "model/checkpoint/head_config.h"
#include "model/checkpoint/model_config.h"
#include "model/checkpoint/model_families.h"
#include "model/checkpoint/model_tensors.h"
#include "model/checkpoint/weights.h"
#include "tandem/json_value.h"
#include "tools/checkpoints/gguf_output.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr char kSuffix[] = ".gguf";
constexpr int kRowsAtATime = 1024;

// A tensor of the new file: one tensor of Transformer, two of them with their rows concatenated, or
// the tensors of all experts as a stack.
struct Output {
  std::string name;  // in a Hugging Face checkpoint
  std::vector<std::string> parts;
  std::vector<int64_t> part_shape;
  DType source_dtype = DType::kF32;
  DType dtype = DType::kF32;
  bool has_permuted_rows = false;  // the file may order the rows within a head differently
  bool is_stack = false;

  std::vector<int64_t> shape() const {
    std::vector<int64_t> whole = part_shape;
    const auto num_parts = static_cast<int64_t>(parts.size());
    if (is_stack) {
      whole.insert(whole.begin(), num_parts);
    } else {
      whole[0] *= num_parts;
    }
    return whole;
  }
};

// The dtype that the file stores a tensor in. Rows consist of whole blocks: if the row length is
// not a multiple of 256, the tensor gets the next better format with blocks of 32; if it is not a
// multiple of 32, it keeps its dtype.
DType StoredFormat(const TensorSpec& tensor, DType source, DType wanted) {
  if (tensor.role == TensorRole::kNorm || tensor.role == TensorRole::kBias) return DType::kF32;
  if (tensor.role == TensorRole::kRouter) return DType::kF32;  // routers are computed in f32
  const int64_t cols = tensor.shape.back();
  const bool is_head = tensor.role == TensorRole::kEmbedding || tensor.name == "lm_head.weight";
  if (is_head) wanted = DType::kQ8_0;
  if (cols % BlockShapeOf(wanted).inputs == 0) return wanted;
  if (cols % kBlockGroup != 0) return source;
  switch (wanted) {
    case DType::kQ4K:
      return DType::kQ4_1;
    case DType::kQ5K:
      return DType::kQ5_1;
    case DType::kQ6K:
      return DType::kQ8_0;
    default:
      return DType::kIq4Nl;
  }
}

// GGUF's number for a file most of whose tensors have this format (llama_ftype of llama.cpp). K
// formats count as their small variants, which use one format throughout.
uint32_t FileTypeOf(DType dtype) {
  constexpr std::pair<DType, uint32_t> kTypes[] = {
      {DType::kQ4_0, 2}, {DType::kQ4_1, 3}, {DType::kQ8_0, 7},   {DType::kQ5_0, 8},
      {DType::kQ5_1, 9}, {DType::kQ2K, 10}, {DType::kQ3K, 11},   {DType::kQ4K, 14},
      {DType::kQ5K, 16}, {DType::kQ6K, 18}, {DType::kIq4Nl, 25}, {DType::kIq4Xs, 30}};
  const auto* const type =
      absl::c_find_if(kTypes, [&](const auto& entry) { return entry.first == dtype; });
  TANDEM_CHECK(type != std::end(kTypes));
  return type->second;
}

bool IsRotated(absl::string_view name) {
  return absl::StrContains(name, ".q_proj.") || absl::StrContains(name, ".k_proj.");
}

// The stack, ".experts.gate_proj.weight", that ".experts.7.gate_proj.weight" is a part of.
struct StackName {
  std::string whole;
  size_t number = 0;  // position in `whole` at which an expert's number is inserted
};
StackName StackOf(const std::string& name) {
  constexpr char kExperts[] = ".experts.";
  const size_t number = name.find(kExperts) + std::size(kExperts) - 1;
  return {absl::StrCat(name.substr(0, number), name.substr(name.find('.', number) + 1)), number};
}

// Adds an expert's tensor to its stack, which the first one creates. Names are sorted, so the
// experts of a layer are adjacent, and expert 0 comes first.
void AddExpert(const TensorSpec& tensor, DType source, DType dtype, int num_experts,
               std::vector<Output>* outputs) {
  const StackName stack = StackOf(tensor.name);
  const auto known = std::find_if(outputs->rbegin(), outputs->rend(),
                                  [&](const Output& output) { return output.name == stack.whole; });
  if (known != outputs->rend()) {
    if (source != known->source_dtype && !IsBlocks(known->dtype)) known->dtype = DType::kF32;
    return;
  }
  outputs->push_back({.name = stack.whole,
                      .parts = {},
                      .part_shape = tensor.shape,
                      .source_dtype = source,
                      .dtype = dtype,
                      .is_stack = true});
  for (int expert = 0; expert < num_experts; ++expert) {
    outputs->back().parts.push_back(absl::StrCat(stack.whole.substr(0, stack.number), expert, ".",
                                                 stack.whole.substr(stack.number)));
  }
}

absl::StatusOr<std::vector<Output>> PlanOutputs(const ModelConfig& config, const GgufForm& form,
                                                const Weights& weights, DType wanted,
                                                QuantizedModel* result) {
  constexpr absl::string_view kGate = ".gate_proj.weight";
  std::vector<Output> outputs;
  for (const TensorSpec& tensor : TensorsOf(config)) {
    ASSIGN_OR_RETURN(const ConstMatrixView view, weights.Describe(tensor.name, tensor.shape));
    if (IsBlocks(view.dtype)) {
      return NotAllowed(absl::StrCat(weights.Where(tensor.name), ": dtype"), NameOf(view.dtype),
                        "float32, float16, bfloat16");
    }
    result->bytes_before += tensor.num_elements() * static_cast<int64_t>(SizeOf(view.dtype));
    const DType dtype = StoredFormat(tensor, view.dtype, wanted);
    if (tensor.role == TensorRole::kExpert) {
      AddExpert(tensor, view.dtype, dtype, config.num_experts, &outputs);
      result->num_quantized += IsBlocks(dtype) ? 1 : 0;
      continue;
    }
    // Names are sorted, so up follows gate.
    if (form.joins_gate_and_up && absl::EndsWith(tensor.name, ".up_proj.weight")) {
      Output& gate = outputs.back();
      gate.parts.push_back(tensor.name);
      if (view.dtype != gate.source_dtype && !IsBlocks(gate.dtype)) gate.dtype = DType::kF32;
      continue;
    }
    outputs.push_back({.name = tensor.name,
                       .parts = {tensor.name},
                       .part_shape = tensor.shape,
                       .source_dtype = view.dtype,
                       .dtype = dtype,
                       .has_permuted_rows = IsRotated(tensor.name)});
    Output& output = outputs.back();
    if (form.joins_gate_and_up && absl::EndsWith(tensor.name, kGate)) {
      output.name = absl::StrReplaceAll(tensor.name, {{kGate, ".gate_up_proj.weight"}});
    }
    result->num_quantized += IsBlocks(output.dtype) ? 1 : 0;
  }
  return outputs;
}

// Removes the description of the source's quantised weights from a config.json: it does not apply
// to the new weights.
absl::StatusOr<std::string> WithoutQuantization(const std::string& text, const std::string& path) {
  ASSIGN_OR_RETURN(JsonValue config, ParseJsonValue(text, path));
  const size_t num_erased =
      config.erase("quantization_config") + config.erase("compression_config");
  return num_erased == 0 ? text : config.dump(2) + "\n";
}

// Copies every file other than weights.
absl::Status CopyOtherFiles(const std::string& source, OutputFolder* folder) {
  std::error_code error;
  std::error_code ignored;
  for (fs::directory_iterator entry(source, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    const std::string path = entry->path().string();
    const std::string name = entry->path().filename().string();
    const bool has_weights = absl::StrContains(name, ".safetensors") ||
                             absl::EndsWith(name, kSuffix) || absl::EndsWith(name, ".bin");
    if (!entry->is_regular_file(ignored) || has_weights) continue;
    if (name == "hf_quant_config.json") continue;
    ASSIGN_OR_RETURN(std::string text, ReadFile(path));
    if (name == "config.json") {
      ASSIGN_OR_RETURN(text, WithoutQuantization(text, path));
    }
    ASSIGN_OR_RETURN(OutputFile file, folder->NewFile(name));
    RETURN_IF_ERROR(file.Write(text));
    RETURN_IF_ERROR(file.Close());
  }
  if (error) return absl::UnavailableError(absl::StrCat(source, ": ", error.message()));
  return absl::OkStatus();
}

// Whether a key describes the source file itself, so that it does not apply to the new one.
bool IsOfTheFile(const std::string& key) {
  return key == "general.alignment" || key == "general.file_type" ||
         absl::StartsWith(key, "split.");
}

// Writes one model.
class Writer {
 public:
  explicit Writer(std::string source) : source_(std::move(source)), pool_(NumUsableCores()) {}

  absl::StatusOr<QuantizedModel> Write(
      DType dtype, const std::string& out,
      absl::FunctionRef<void(int64_t written, int64_t total)> on_bytes) {
    const bool is_file = absl::EndsWith(out, kSuffix);
    ASSIGN_OR_RETURN(const std::string gguf, GgufIn(source_));
    ASSIGN_OR_RETURN(config_, ReadModelConfig(source_));
    const ModelFamily* const family = FamilyOfType(config_.family);
    if (family == nullptr || family->gguf.architecture == nullptr) {
      return HasNoPlaceInGguf(source_, absl::StrCat("a ", config_.family, " model"));
    }
    form_ = family->gguf;
    ASSIGN_OR_RETURN(std::shared_ptr<const Weights> stored,
                     Weights::Open(source_, QuantizedForm::kFloats));
    ASSIGN_OR_RETURN(weights_, ArrangeWeights(std::move(stored), config_));
    CompleteHead(*weights_, &config_);
    RETURN_IF_ERROR(SettleHead(*weights_, /*is_equal=*/std::nullopt, &config_));
    ASSIGN_OR_RETURN(const std::vector<Output> outputs,
                     PlanOutputs(config_, form_, *weights_, dtype, &result_));
    RETURN_IF_ERROR(CheckAllHavePlaces(*weights_, config_));
    RETURN_IF_ERROR(AddKeys(gguf, is_file));
    header_.Add("general.file_type", FileTypeOf(dtype));  // OpenVINO opens no file without it
    std::string first_bytes;
    for (const GgufRopeTensor& tensor : RopeTensorsOf(config_)) {
      const auto size = static_cast<int64_t>(tensor.divisors.size());
      header_.AddTensor(tensor.name, {size}, DType::kF32);
      first_bytes.append(reinterpret_cast<const char*>(tensor.divisors.data()),
                         size * sizeof(float));
      first_bytes += GgufHeader::PaddingAfter(static_cast<int64_t>(first_bytes.size()));
    }
    RETURN_IF_ERROR(AddDraftIds(&first_bytes));
    for (const Output& output : outputs) {
      header_.AddTensor(GgufTensorName(output.name, *family), output.shape(), output.dtype);
    }
    result_.bytes_after = header_.tensor_bytes();
    const std::string beginning = header_.Bytes() + first_bytes;
    if (is_file) {
      RETURN_IF_ERROR(
          CheckIsReadAs(config_, beginning, gguf.empty() ? source_ + "/config.json" : gguf));
    }

    ASSIGN_OR_RETURN(OutputFolder folder,
                     is_file ? OutputFolder::Around(out) : OutputFolder::Create(out));
    RETURN_IF_ERROR(folder.CheckFreeSpace(result_.bytes_after));
    ASSIGN_OR_RETURN(OutputFile file,
                     folder.NewFile(is_file ? fs::path(out).filename().string() : "model.gguf"));
    RETURN_IF_ERROR(file.Write(beginning));
    for (const Output& output : outputs) {
      RETURN_IF_ERROR(WriteTensor(
          output, &file, [&](int64_t written) { on_bytes(written, result_.bytes_after); }));
    }
    RETURN_IF_ERROR(file.Close());
    if (!is_file && gguf.empty()) RETURN_IF_ERROR(CopyOtherFiles(source_, &folder));
    folder.Keep();
    return result_;
  }

 private:
  // Adds the tensor that maps a draft head's logits to token ids.
  absl::Status AddDraftIds(std::string* bytes) {
    if (!config_.is_draft_head() || !weights_->Has(kDraftIds)) {
      return absl::OkStatus();
    }
    const int64_t size = config_.draft_vocab_size;
    ASSIGN_OR_RETURN(const std::vector<int64_t> ids, weights_->GetIntegers(kDraftIds, size));
    header_.AddInt64Tensor(kDraftIds, size);
    bytes->append(reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(int64_t));
    *bytes += GgufHeader::PaddingAfter(static_cast<int64_t>(bytes->size()));
    return absl::OkStatus();
  }

  absl::Status AddKeys(const std::string& gguf, bool is_file) {
    if (!gguf.empty()) {
      ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file, GgufFile::Open(gguf));
      for (const std::string& key : file->keys()) {
        if (!IsOfTheFile(key)) header_.Copy(*file, key);
      }
      return absl::OkStatus();
    }
    AddConfigKeys(config_, form_, &header_);
    const bool has_tokenizer = fs::exists(fs::path(source_) / "tokenizer.json") ||
                               fs::exists(fs::path(source_) / "tokenizer.model");
    if (is_file && has_tokenizer) return AddTextKeys(source_, config_, &header_);
    AddNoTextKeys(&header_);
    return absl::OkStatus();
  }

  absl::Status WriteTensor(const Output& output, OutputFile* file,
                           absl::FunctionRef<void(int64_t written)> on_bytes) {
    int64_t written = 0;
    for (const std::string& part : output.parts) {
      ASSIGN_OR_RETURN(ConstMatrixView source, weights_->Get(part, output.part_shape));
      // A vector is written as rows of one element.
      if (output.part_shape.size() == 1) std::swap(source.rows, source.cols);
      source.stride = source.cols;
      for (int first = 0; first < source.rows; first += kRowsAtATime) {
        const int count = std::min(kRowsAtATime, source.rows - first);
        const std::vector<std::byte> rows = MakeRows(output, source, first, count);
        RETURN_IF_ERROR(file->Write({reinterpret_cast<const char*>(rows.data()), rows.size()}));
        written += static_cast<int64_t>(rows.size());
        on_bytes(static_cast<int64_t>(rows.size()));
      }
      weights_->Forget(part);
    }
    return file->Write(GgufHeader::PaddingAfter(written));
  }

  // Rows [first, first + count) of a part of the new tensor.
  std::vector<std::byte> MakeRows(const Output& output, const ConstMatrixView& source, int first,
                                  int count) {
    const size_t row_bytes = RowBytes(output.dtype, source.cols);
    std::vector<std::byte> bytes(row_bytes * count);
    const std::vector<int> order = output.has_permuted_rows ? HeadOrder() : std::vector<int>();
    pool_.Run([&](int thread) {
      const Share share = ShareOf(count, pool_.num_threads(), thread);
      std::vector<std::byte> storage;
      std::vector<float> widened(source.cols);
      for (int64_t r = share.begin; r < share.end; ++r) {
        auto row = static_cast<int>(first + r);
        if (!order.empty()) row += order[row % config_.head_dim] - row % config_.head_dim;
        const std::byte* from = static_cast<const std::byte*>(source.data) +
                                row * RowBytes(source.dtype, source.stride);
        if (IsBlocks(output.dtype)) {
          from = BlockRow(source, row, output.dtype, &storage);
        } else if (output.dtype != source.dtype) {  // the output is f32
          WidenRow(from, source.dtype, source.cols, widened.data());
          from = reinterpret_cast<const std::byte*>(widened.data());
        }
        std::memcpy(bytes.data() + r * row_bytes, from, row_bytes);
      }
    });
    return bytes;
  }

  // Maps each row of a head in the file to its row in Transformer; empty if the orders are the
  // same.
  std::vector<int> HeadOrder() const {
    if (!OrdersHeads(config_, form_.rotary_pairs)) return {};
    std::vector<int> order(config_.head_dim);
    for (int row = 0; row < config_.head_dim; ++row) {
      order[StoredRow(config_, form_.rotary_pairs, row)] = row;
    }
    return order;
  }

  const std::string source_;
  ThreadPool pool_;
  ModelConfig config_;
  GgufForm form_;
  std::shared_ptr<const Weights> weights_;
  GgufHeader header_;
  QuantizedModel result_;
};

}  // namespace

absl::StatusOr<QuantizedModel> WriteQuantizedModel(
    const std::string& source, DType dtype, const std::string& out,
    absl::FunctionRef<void(int64_t, int64_t)> on_bytes) {
  return Writer(source).Write(dtype, out, on_bytes);
}

}  // namespace tandem
