#include "model/checkpoint/quantized_weights.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/hash_map.h"
#include "base/json/json_text.h"
#include "base/process_limits.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "base/thread_pool.h"
#include "kernels/blocks.h"

namespace tandem {
namespace {

using Layout = QuantizationConfig::Layout;

// Rows that a thread makes at a time.
constexpr int kRowsOfPart = 64;
// Matrices with more elements are made by several threads.
constexpr int64_t kSmallMatrix = int64_t{1} << 20;

// A tensor that makes its module quantised: its suffix, and its dtype unless that is empty.
struct ModuleNumbers {
  Layout layout;
  const char* suffix;
  const char* dtype;
  MatrixOrError (*open)(const StoredWeights& stored, const std::string& module,
                        const QuantizationConfig& config);
};
constexpr ModuleNumbers kModuleNumbers[] = {
    {Layout::kGptq, ".qweight", "", OpenGptqMatrix},
    {Layout::kAwq, ".qweight", "", OpenAwqMatrix},
    {Layout::kFp8, ".weight", "F8_E4M3", OpenFp8Matrix},
    {Layout::kCompressedTensors, ".weight_packed", "", OpenPackedMatrix},
    {Layout::kCompressedTensors, ".weight", "I8", OpenInt8Matrix},
    {Layout::kCompressedTensors, ".weight", "F8_E4M3", OpenFp8Matrix}};

// Scales and zero points of activations and caches. These are not quantised here as the checkpoint
// was calibrated for.
constexpr absl::string_view kActivationSuffixes =
    ".activation_scale .input_scale .input_scale_ub .input_zero_point .k_scale .k_zero_point "
    ".kv_scale .output_scale .output_zero_point .prob_output_scale .q_scale .q_zero_point "
    ".v_scale .v_zero_point";

bool IsOfActivations(const std::string& name) {
  return absl::c_any_of(absl::StrSplit(kActivationSuffixes, ' '),
                        [&](absl::string_view suffix) { return absl::EndsWith(name, suffix); });
}

class QuantizedWeights final : public Weights {
 public:
  QuantizedWeights(std::unique_ptr<StoredWeights> stored, QuantizedForm form,
                   std::vector<std::string> files)
      : stored_(std::move(stored)), form_(form), files_(std::move(files)) {}

  absl::Status Index(const QuantizationConfig& config) {
    const std::vector<std::string> names = stored_->names();
    for (const std::string& name : names) RETURN_IF_ERROR(AddMatrix(name, config));
    for (const std::string& name : names) {
      const bool is_scale =
          config.layout != Layout::kGptq && config.layout != Layout::kAwq && IsOfActivations(name);
      if (is_scale || IsZeroBias(name)) hidden_.insert(name);
    }
    SetQuantization(config);
    return absl::OkStatus();
  }

  bool Has(std::string_view name) const override {
    return matrices_.contains(View(name)) || (stored_->Has(name) && !parts_.contains(View(name)));
  }

  absl::StatusOr<ConstMatrixView> Get(std::string_view name,
                                      absl::Span<const int64_t> shape) const override {
    const auto found = matrices_.find(View(name));
    if (found == matrices_.end()) return stored_->Get(name, shape);
    ASSIGN_OR_RETURN(ConstMatrixView view, Describe(name, shape));
    view.data = Made(found->first, *found->second, view.dtype);
    return view;
  }

  absl::StatusOr<ConstMatrixView> Describe(std::string_view name,
                                           absl::Span<const int64_t> shape) const override {
    const auto found = matrices_.find(View(name));
    if (found == matrices_.end()) return stored_->Describe(name, shape);
    const QuantizedMatrix& matrix = *found->second;
    if (shape != absl::Span<const int64_t>({matrix.rows(), matrix.cols()})) {
      return NotAllowed(absl::StrCat(Where(name), ": shape"),
                        absl::StrCat("numbers of ", ShapeText({matrix.rows(), matrix.cols()})),
                        ShapeText(shape));
    }
    return ConstMatrixView(nullptr, DTypeOf(matrix), matrix.rows(), matrix.cols(), matrix.cols());
  }

  absl::StatusOr<std::vector<int64_t>> GetIntegers(std::string_view name,
                                                   int64_t size) const override {
    return stored_->GetIntegers(name, size);
  }

  void Forget(std::string_view name) const override {
    const auto found = matrices_.find(View(name));
    if (found == matrices_.end()) return stored_->Forget(name);
    for (const std::string& tensor : found->second->tensors()) stored_->Forget(tensor);
    const std::lock_guard<std::mutex> lock(made_mutex_);
    made_.erase(found->first);
  }

  bool IsMade(std::string_view name) const override { return matrices_.contains(View(name)); }
  std::string quantization() const override { return quantization_; }

  std::vector<std::string> files() const override {
    std::vector<std::string> files = stored_->files();
    files.insert(files.end(), files_.begin(), files_.end());
    return files;
  }

  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const std::string& name : stored_->names()) {
      if (!parts_.contains(name) && !hidden_.contains(name)) names.push_back(name);
    }
    for (const auto& [name, matrix] : matrices_) names.push_back(name);
    std::sort(names.begin(), names.end());
    return names;
  }

  int64_t num_elements(std::string_view name) const override {
    const auto found = matrices_.find(View(name));
    if (found == matrices_.end()) return stored_->num_elements(name);
    return int64_t{found->second->rows()} * found->second->cols();
  }

  std::string Where(std::string_view name) const override {
    const auto found = matrices_.find(View(name));
    return stored_->Where(found == matrices_.end() ? name : found->second->tensors()[0]);
  }

 private:
  // Opens the matrix of a module if the tensor holds its numbers.
  absl::Status AddMatrix(const std::string& name, const QuantizationConfig& config) {
    const SafetensorsEntry& entry = *stored_->Find(name);
    for (const ModuleNumbers& numbers : kModuleNumbers) {
      absl::string_view module = name;
      const bool is_its = numbers.layout == config.layout &&
                          absl::ConsumeSuffix(&module, numbers.suffix) &&
                          (*numbers.dtype == '\0' || entry.dtype_name == numbers.dtype);
      if (!is_its) continue;
      ASSIGN_OR_RETURN(std::unique_ptr<QuantizedMatrix> matrix,
                       numbers.open(*stored_, std::string(module), config));
      const std::string logical = absl::StrCat(module, ".weight");
      if (logical != name && stored_->Has(logical)) {
        return NotAllowed(stored_->Where(logical), absl::StrCat("next to ", Quoted(name)),
                          "one of the two");
      }
      for (const std::string& tensor : matrix->tensors()) parts_.insert(tensor);
      matrices_[logical] = std::move(matrix);
      return absl::OkStatus();
    }
    return absl::OkStatus();
  }

  // Returns whether the tensor is the all-zero bias of a quantised module.
  bool IsZeroBias(const std::string& name) const {
    absl::string_view module = name;
    if (!absl::ConsumeSuffix(&module, ".bias")) return false;
    if (!matrices_.contains(absl::StrCat(module, ".weight"))) return false;
    const SafetensorsEntry& entry = *stored_->Find(name);
    return entry.dtype.has_value() &&
           std::all_of(entry.bytes.begin(), entry.bytes.end(),
                       [](std::byte byte) { return byte == std::byte{0}; });
  }

  DType DTypeOf(const QuantizedMatrix& matrix) const {
    const MatrixForms& forms = matrix.forms();
    return form_ == QuantizedForm::kBlocks ? forms.blocks.value_or(forms.floats) : forms.floats;
  }

  void SetQuantization(const QuantizationConfig& config) {
    std::map<std::string, int> counts;
    for (const auto& [name, matrix] : matrices_) {
      const DType dtype = DTypeOf(*matrix);
      if (IsBlocks(dtype)) {
        ++counts[absl::StrCat(" as ", NameOf(dtype))];
      } else {
        const std::string& why = matrix->forms().why_no_blocks;
        ++counts[absl::StrCat(" dequantised to ", NameOf(dtype), why.empty() ? "" : " (", why,
                              why.empty() ? "" : ")")];
      }
    }
    quantization_ = absl::StrCat(
        config.method, ": ",
        counts.empty() ? "no matrices"
                       : absl::StrJoin(counts, ", ", [](std::string* out, const auto& count) {
                           absl::StrAppend(out, count.second,
                                           count.second == 1 ? " matrix" : " matrices",
                                           count.first);
                         }));
  }

  const void* Made(const std::string& name, const QuantizedMatrix& matrix, DType dtype) const {
    const std::lock_guard<std::mutex> lock(made_mutex_);
    std::unique_ptr<std::byte[]>& made = made_[name];
    if (made != nullptr) return made.get();
    const size_t row_bytes = RowBytes(dtype, matrix.cols());
    std::unique_ptr<std::byte[]> bytes(new std::byte[row_bytes * matrix.rows()]);
    const bool is_small = int64_t{matrix.rows()} * matrix.cols() <= kSmallMatrix;
    ThreadPool pool(is_small ? 1 : NumUsableCores());
    const int num_parts = (matrix.rows() + kRowsOfPart - 1) / kRowsOfPart;
    pool.Run([&](int thread) {
      const Share share = ShareOf(num_parts, pool.num_threads(), thread);
      for (int64_t part = share.begin; part < share.end; ++part) {
        const int first = static_cast<int>(part) * kRowsOfPart;
        matrix.WriteRows(first, std::min(kRowsOfPart, matrix.rows() - first), dtype,
                         bytes.get() + first * row_bytes);
      }
    });
    made = std::move(bytes);
    return made.get();
  }

  const std::unique_ptr<StoredWeights> stored_;
  const QuantizedForm form_;
  const std::vector<std::string> files_;
  HashMap<std::string, std::unique_ptr<QuantizedMatrix>> matrices_;  // by "X.weight"
  HashSet<std::string> parts_;   // tensors that matrices are made of
  HashSet<std::string> hidden_;  // tensors that change nothing
  std::string quantization_;
  mutable std::mutex made_mutex_;
  mutable std::map<std::string, std::unique_ptr<std::byte[]>> made_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Weights>> OpenQuantizedWeights(
    std::unique_ptr<StoredWeights> stored, const QuantizationConfig& config, QuantizedForm form,
    const std::vector<std::string>& files) {
  auto weights = std::make_unique<QuantizedWeights>(std::move(stored), form, files);
  RETURN_IF_ERROR(weights->Index(config));
  return weights;
}

}  // namespace tandem
