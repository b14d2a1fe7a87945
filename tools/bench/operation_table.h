// The table of operations of a model with given sizes. Each entry sets up several operations, which
// share memory, and runs them interleaved.
#ifndef TANDEM_TOOLS_BENCH_OPERATION_TABLE_H_
#define TANDEM_TOOLS_BENCH_OPERATION_TABLE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "kernels/backend.h"
#include "model/checkpoint/model_config.h"
#include "model/transformer.h"
#include "tools/bench/operation.h"
#include "tools/checkpoints/random_model.h"

namespace tandem {

inline constexpr uint64_t kBenchSeed = 5;

// Returns random numbers of `dtype` between -1 and 1.
template <typename T>
std::vector<T> RandomNumbers(int64_t count, DType dtype) {
  std::vector<T> values(count);
  FillRandom(kBenchSeed, 0, 0, 0.0f, 1.0f, dtype,
             {reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(T)});
  return values;
}
inline std::vector<float> RandomFloats(int64_t count) {
  return RandomNumbers<float>(count, DType::kF32);
}
inline std::vector<uint16_t> RandomBf16(int64_t count) {
  return RandomNumbers<uint16_t>(count, DType::kBF16);
}

template <typename T>
absl::StatusOr<Buffer> Uploaded(const std::vector<T>& values, Backend* backend) {
  const size_t bytes = values.size() * sizeof(T);
  ASSIGN_OR_RETURN(Buffer buffer, backend->Allocate(bytes));
  backend->Upload({reinterpret_cast<const std::byte*>(values.data()), bytes}, buffer.data());
  return buffer;
}

// A matrix in the backend's memory.
struct DeviceMatrix {
  Buffer buffer;
  int cols = 0;

  static absl::StatusOr<DeviceMatrix> Random(Backend* backend, int rows, int cols) {
    DeviceMatrix matrix{.buffer = {}, .cols = cols};
    ASSIGN_OR_RETURN(matrix.buffer, Uploaded(RandomFloats(int64_t{rows} * cols), backend));
    return matrix;
  }
  // Returns a matrix whose rows are all the same.
  static absl::StatusOr<DeviceMatrix> Repeat(Backend* backend, int rows, int cols) {
    DeviceMatrix matrix{.buffer = {}, .cols = cols};
    ASSIGN_OR_RETURN(matrix.buffer, backend->Allocate(sizeof(float) * rows * int64_t{cols}));
    const std::vector<float> row = RandomFloats(cols);
    const size_t bytes = row.size() * sizeof(float);
    backend->Upload({reinterpret_cast<const std::byte*>(row.data()), bytes}, matrix.row(0));
    for (int i = 1; i < rows; ++i) backend->Copy(matrix.row(0), matrix.row(i), bytes);
    return matrix;
  }
  float* row(int index) const { return static_cast<float*>(buffer.data()) + int64_t{index} * cols; }
  MatrixView first(int rows) const { return {buffer.data(), DType::kF32, rows, cols, cols}; }
};

struct OperationOptions {
  ModelConfig config{};              // the sizes
  std::vector<DType> dtypes{};       // of weights
  std::optional<DType> quantized{};  // the format to which weights are quantised
  std::vector<KvDType> kv_dtypes{};  // of caches
  std::vector<int> rows{};           // of one sequence
  std::vector<int> batches = {1};    // sequences; if more than one, each has one row
  std::vector<int> contexts{};       // tokens in the cache
  bool rows_follow_context = false;  // in attention; otherwise the rows are the context's last ones
  bool norms_rows = false;           // whether products normalise their rows where a model does
  bool bf16_products = false;  // whether the backend multiplies bf16 weights with bf16 activations
  // Size of the copies of weights or caches together: a processor's cache should hold only a small
  // part of them.
  int64_t working_set_bytes = MemoryBufferBytes();
  RunOptions run{};
};

// Allocates the memory of one entry at a time.
class OperationTable {
 public:
  // `backend` and `limits` must outlive this object. `limits` may be null.
  OperationTable(const OperationOptions& options, Backend* backend, MachineLimits* limits)
      : options_(options), backend_(*backend), limits_(limits) {}
  OperationTable(const OperationTable&) = delete;
  OperationTable& operator=(const OperationTable&) = delete;

  // Adds "read" and "copy" of this many bytes of the device's memory.
  void AddMemory(int64_t bytes);
  // Adds the products of a layer and the head, called `op`. INVALID_ARGUMENT, naming `option`, if a
  // block format does not fit a matrix.
  absl::Status AddProducts(std::string_view op, std::string_view option);
  // Adds "experts" if the model has experts: each row chooses at random, on the host.
  void AddExperts();
  // Adds "attention"; with the part "windowed" for layers with a sliding window.
  void AddAttention();
  // Adds "rms_norm".
  void AddNorms();
  // Adds "sample", from a row of logits in the host's memory to a token. The parts are the most
  // likely token, a drawn one, and one drawn from the most likely tokens.
  void AddHostSampling();
  // Adds "sampling" of rows that stay on the device, including the small copies to the host and
  // back, if the backend has a sampler. The parts are "top_p" (of .95), "softmax", "draw",
  // "residual".
  void AddDeviceSampling();
  // Adds "pass": whole passes of `model`, which must outlive this object. Leaves out sizes that do
  // not fit into its context. If a pass has at most `most_verified` rows, every row has logits,
  // otherwise only the last one.
  void AddPasses(Transformer* model, KvDType kv_dtype, int most_verified);

  int num_operations() const;
  // Runs the entries, and calls `on_result` for each result as soon as its entry has ended, so that
  // an interrupted run has reported everything so far. RESOURCE_EXHAUSTED without enough memory.
  absl::Status Run(absl::FunctionRef<void(const OperationResult&)> on_result) const;

 private:
  using OnResult = absl::FunctionRef<void(const OperationResult&)>;
  struct Entry {
    size_t num_operations;
    std::function<absl::Status(OnResult)> run;
  };
  // The number of sequences of one call, and the numbers of rows per sequence to measure.
  struct Sequences {
    int batch;
    std::vector<int> rows;
  };
  struct WeightShape;
  // Maximum number of copies. Smaller operations stay in the caches, which a model would also do.
  static constexpr int64_t kMaxCopies = 1024;

  void Add(size_t num_operations, std::function<absl::Status(OnResult)> run) {
    if (num_operations > 0) entries_.push_back({num_operations, std::move(run)});
  }
  absl::Status RunAll(std::vector<Operation> operations, OnResult on_result) const {
    return RunInTurns(std::move(operations), options_.run, &backend_, limits_, on_result);
  }
  absl::StatusOr<DeviceMatrix> Random(int rows, int cols) const {
    return DeviceMatrix::Random(&backend_, rows, cols);
  }
  std::vector<Sequences> SequencesOf(int most_rows) const;
  int max_rows() const;
  absl::StatusOr<std::vector<PackedWeight>> PackCopies(const WeightShape& shape, DType dtype,
                                                       int64_t bytes) const;
  absl::StatusOr<double> ReferenceMs(const std::vector<PackedWeight>& copies, int rows) const;
  std::vector<int32_t> RandomChoices(int rows, double* mean_union) const;
  absl::Status RunProducts(std::string_view op, const WeightShape& shape, DType dtype,
                           OnResult on_result) const;
  absl::Status RunAttention(const Sequences& sequences, int context, int window, KvDType dtype,
                            OnResult on_result) const;
  absl::Status RunPasses(Transformer* model, KvDType kv_dtype, int most_verified,
                         const Sequences& sequences, int context, OnResult on_result) const;

  const OperationOptions options_;
  Backend& backend_;
  MachineLimits* const limits_;  // may be null
  std::vector<Entry> entries_;
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_OPERATION_TABLE_H_
