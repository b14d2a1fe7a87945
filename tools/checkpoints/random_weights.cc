#include "tools/checkpoints/random_weights.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/process_limits.h"
#include "base/string_view.h"
#include "checkpoint/model_tensors.h"
#include "kernels/blocks.h"
#include "kernels/quantize.h"

namespace tandem {
namespace {

// Shared by the tensors of one name in all layers, and of all experts.
struct SharedTensor {
  TensorSpec spec;
  std::vector<std::byte> bytes;
  ConstMatrixView matrix;
};

class RandomWeights final : public Weights {
 public:
  RandomWeights(const RandomModelShape& shape, uint64_t seed, std::optional<DType> quantized) {
    ThreadPool pool(NumUsableCores());
    for (TensorSpec& spec : TensorsOf(shape.Config())) {
      std::string kind = spec.name;
      std::erase_if(kind, [](char c) { return absl::ascii_isdigit(c); });
      const auto index = static_cast<uint32_t>(shared_.size());
      const auto [it, is_new] = shared_.try_emplace(kind);
      tensors_[spec.name] = &it->second;
      if (is_new) Make(std::move(spec), seed, index, shape.dtype, quantized, &pool, &it->second);
    }
  }

  bool Has(std::string_view name) const override { return tensors_.find(name) != tensors_.end(); }
  absl::StatusOr<ConstMatrixView> Get(std::string_view name,
                                      absl::Span<const int64_t> shape) const override {
    const auto it = tensors_.find(name);
    if (it == tensors_.end()) return absl::NotFoundError(absl::StrCat(Where(name), ": missing"));
    if (const std::vector<int64_t>& own = it->second->spec.shape; shape != own) {
      return absl::InvalidArgumentError(
          absl::StrCat(Where(name), ": found ", ShapeText(own), ", wanted ", ShapeText(shape)));
    }
    return it->second->matrix;
  }
  absl::StatusOr<ConstMatrixView> Describe(std::string_view name,
                                           absl::Span<const int64_t> shape) const override {
    return Get(name, shape);
  }
  absl::StatusOr<std::vector<int64_t>> GetIntegers(std::string_view name,
                                                   int64_t /*size*/) const override {
    return absl::NotFoundError(absl::StrCat(Where(name), ": missing"));
  }
  void Forget(std::string_view /*name*/) const override {}
  std::vector<std::string> files() const override { return {}; }
  std::vector<std::string> names() const override {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : tensors_) names.push_back(name);
    return names;
  }
  int64_t num_elements(std::string_view name) const override {
    return tensors_.find(name)->second->spec.num_elements();
  }
  std::string Where(std::string_view name) const override {
    return absl::StrCat("random weights: ", View(name));
  }

 private:
  static void Make(TensorSpec spec, uint64_t seed, uint32_t index, DType dtype,
                   std::optional<DType> quantized, ThreadPool* pool, SharedTensor* to) {
    const bool is_vector = spec.shape.size() == 1;
    const int rows = is_vector ? 1 : static_cast<int>(spec.shape.front());
    const int cols = static_cast<int>(spec.shape.back());
    to->bytes.resize(spec.num_elements() * SizeOf(dtype));
    FillTensor(spec, seed, index, 0, dtype, pool, absl::MakeSpan(to->bytes));
    to->matrix = {to->bytes.data(), dtype, rows, cols, cols};
    if (quantized.has_value() && !is_vector && spec.role != TensorRole::kRouter &&
        cols % kBlockGroup == 0) {
      const bool is_head = spec.role == TensorRole::kEmbedding || spec.name == "lm_head.weight";
      const DType format = is_head ? DType::kQ8_0 : *quantized;
      to->bytes = QuantizeMatrix(to->matrix, format, pool);
      to->matrix = {to->bytes.data(), format, rows, cols, cols};
    }
    to->spec = std::move(spec);
  }

  std::map<std::string, SharedTensor> shared_;
  std::map<std::string, const SharedTensor*, std::less<>> tensors_;
};

}  // namespace

std::shared_ptr<const Weights> MakeRandomWeights(const RandomModelShape& shape, uint64_t seed,
                                                 std::optional<DType> quantized) {
  return std::make_shared<RandomWeights>(shape, seed, quantized);
}

}  // namespace tandem
