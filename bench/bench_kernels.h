// Measures single operations of a transformer beside what this machine's memory and arithmetic
// allow.
#ifndef TANDEM_BENCH_BENCH_KERNELS_H_
#define TANDEM_BENCH_BENCH_KERNELS_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "bench/machine_limits.h"
#include "kernels/backend.h"

namespace tandem {

// The names of dtypes and operations here are those of the JSON: "f32", "bf16", ...
std::string_view ShortNameOf(DType dtype);

// What weights may be made of.
inline constexpr DType kWeightDTypes[] = {DType::kF32,  DType::kF16,   DType::kBF16, DType::kQ8_0,
                                          DType::kQ4_0, DType::kQ4_1,  DType::kQ5_0, DType::kQ5_1,
                                          DType::kQ2K,  DType::kQ3K,   DType::kQ4K,  DType::kQ5K,
                                          DType::kQ6K,  DType::kIq4Nl, DType::kIq4Xs};
inline constexpr std::string_view kKernelOps[] = {"matmul", "experts", "attention", "rms_norm",
                                                  "sample"};

// The sizes that the operations of a model have.
struct KernelShapes {
  int hidden = 0;
  int ffn = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int vocab = 0;
  int experts = 0;  // 0: none
  int experts_per_row = 0;
  int expert_ffn = 0;
  int window = 0;  // that some layers see, 0: none
};

struct KernelBenchmarkOptions {
  KernelShapes shapes;
  std::vector<std::string_view> ops;  // of kKernelOps
  std::vector<DType> dtypes;          // of weights
  std::vector<int> rows;
  std::vector<int> contexts;  // of attention, in tokens, the rows' own included
  int repeat = 7;
  bool bf16_products = false;  // whether the backend multiplies bf16 weights with bf16 activations
  // Weights and caches, together: what no cache holds a notable part of.
  int64_t working_set_bytes = MemoryBufferBytes();
};

struct KernelResult {
  std::string_view op;
  std::string_view part;  // of a model: "qkv", "gate_up", ...; empty for operations without weights
  DType dtype = DType::kF32;
  int rows = 0;
  int context = 0;  // attention only
  // [outputs, inputs]; experts: [experts, experts_per_row, hidden, expert_ffn]; attention: [heads,
  // kv_heads, head_dim]; [size]
  std::vector<int> shape;
  Demand demand;  // of one call
  LimitedTime time;

  double bytes_per_second() const { return demand.bytes / (time.ms * 1e-3); }
  double flops_per_second() const { return demand.flops / (time.ms * 1e-3); }
};

// What products with such weights are computed by, on this machine.
DotInput DotInputOf(DType weight, bool bf16_products);
// Whether a CPU backend made with `compute` multiplies bf16 weights with bf16 activations.
bool UsesBf16Products(CpuCompute compute);

// How often RunKernelBenchmark calls `on_sample`.
int NumKernelSamples(const KernelBenchmarkOptions& options);

// Every operation with everything that is asked for, those of one weight or cache in turns.
// RESOURCE_EXHAUSTED if there is not enough memory.
absl::StatusOr<std::vector<KernelResult>> RunKernelBenchmark(const KernelBenchmarkOptions& options,
                                                             Backend* backend,
                                                             MachineLimits* limits,
                                                             absl::FunctionRef<void()> on_sample);

}  // namespace tandem

#endif  // TANDEM_BENCH_BENCH_KERNELS_H_
