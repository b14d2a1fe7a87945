// The operations that benchmarks measure on every device: each has a name, a function that runs it,
// and the bytes and arithmetic that it needs.
#ifndef TANDEM_TOOLS_BENCH_OPERATION_H_
#define TANDEM_TOOLS_BENCH_OPERATION_H_

#include <cmath>
#include <functional>
#include <map>
#include <string_view>
#include <tuple>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "kernels/backend.h"
#include "tools/bench/machine_limits.h"

namespace tandem {

// The types of weights.
inline constexpr DType kWeightDTypes[] = {DType::kF32,  DType::kF16,   DType::kBF16, DType::kQ8_0,
                                          DType::kQ4_0, DType::kQ4_1,  DType::kQ5_0, DType::kQ5_1,
                                          DType::kQ2K,  DType::kQ3K,   DType::kQ4K,  DType::kQ5K,
                                          DType::kQ6K,  DType::kIq4Nl, DType::kIq4Xs};
// Returns the name in options and JSON: "f32", "bf16", "q8_0", ...
std::string_view ShortNameOf(DType dtype);

struct Operation {
  std::string_view op;         // "matmul", "attention", "pass", ...
  std::string_view part = "";  // of a model: "qkv", ...; for passes: "decode", "verify", "prefill"
  DType dtype = DType::kF32;   // of the weights, or of the cache
  int rows = 0;                // per sequence
  int batch = 1;               // sequences
  int context = 0;             // tokens in the cache
  // Products: [outputs, inputs]; experts: [experts, experts_per_row, hidden, expert_ffn];
  // attention: [heads, kv_heads, head_dim]; others: [size].
  std::vector<int> shape = {};
  Demand demand = {};  // of one call

  // Enqueues a call. `turn` counts up from 0 and selects the copy of the weights or the cache.
  std::function<absl::Status(int turn)> run = {};
  // The same for DeviceMeter::SecondsWithoutHost; empty if the host takes part in the operation.
  std::function<void(int turn)> on_device = {};
  int num_turns = 1;  // number of copies
  // Milliseconds of one call of the vendor's library, which may sum in any order
  // (DeviceMeter::ReferenceProduct).
  double reference_ms = NAN;
};

// Returns an operation that a device can run without the host.
Operation Enqueued(Operation operation, std::function<void(int turn)> enqueue,
                   size_t num_turns = 1);

struct OperationResult {
  Operation operation;
  LimitedTime time;  // of_limit and bound are only valid with limits
  double device_ms = NAN;

  // The device's time if known, else the host's.
  double best_ms() const { return std::isfinite(device_ms) ? device_ms : time.ms; }
  double bytes_per_second() const { return operation.demand.bytes / (best_ms() * 1e-3); }
  double flops_per_second() const { return operation.demand.flops / (best_ms() * 1e-3); }
};

// Compares times with that of the same operation on one row of one sequence, which must come first.
class OneRow {
 public:
  // Returns the ratio; NaN if no such time was seen.
  double Of(const OperationResult& result);

 private:
  using Key = std::tuple<std::string_view, std::string_view, int>;  // op, part, context
  std::map<Key, double> ms_;
};

struct RunOptions {
  int repeat = 7;
  double sample_seconds = 4e-3;  // minimum duration of a sample
  // If set, called before each sample. An error ends the measurement.
  std::function<absl::Status(const Operation&)> before_sample = {};
};

// Runs `repeat` samples of each operation, interleaved. Times are medians of one call: by the
// host's clock, with calls enqueued one after the other, and, if the backend has a meter, recorded
// and replayed on the device. Each sample is compared with `limits` (unless null), measured right
// after it.
absl::Status RunInTurns(std::vector<Operation> operations, const RunOptions& options,
                        Backend* backend, MachineLimits* limits,
                        absl::FunctionRef<void(const OperationResult&)> on_result);

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_OPERATION_H_
