// Operations as benchmarks measure them, on every device: the name, how to run it, and the bytes
// and the arithmetic that it needs.
#ifndef TANDEM_BENCH_OPERATION_H_
#define TANDEM_BENCH_OPERATION_H_

#include <cmath>
#include <functional>
#include <map>
#include <string_view>
#include <tuple>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "bench/machine_limits.h"
#include "kernels/backend.h"

namespace tandem {

// What weights may be made of.
inline constexpr DType kWeightDTypes[] = {DType::kF32,  DType::kF16,   DType::kBF16, DType::kQ8_0,
                                          DType::kQ4_0, DType::kQ4_1,  DType::kQ5_0, DType::kQ5_1,
                                          DType::kQ2K,  DType::kQ3K,   DType::kQ4K,  DType::kQ5K,
                                          DType::kQ6K,  DType::kIq4Nl, DType::kIq4Xs};
// As options and the JSON call it: "f32", "bf16", "q8_0", ...
std::string_view ShortNameOf(DType dtype);

struct Operation {
  std::string_view op;         // "matmul", "attention", "pass", ...
  std::string_view part = "";  // of a model: "qkv", ...; of passes: "decode", "verify", "prefill"
  DType dtype = DType::kF32;   // of the weights, or of the cache
  int rows = 0;                // of each sequence
  int batch = 1;               // sequences
  int context = 0;             // tokens in the cache
  // [outputs, inputs]; experts: [experts, experts_per_row, hidden, expert_ffn]; attention: [heads,
  // kv_heads, head_dim]; [size]
  std::vector<int> shape = {};
  Demand demand = {};  // of one call

  // Enqueues a call. Turns count up from 0: copies of the weights or the cache take turns.
  std::function<absl::Status(int turn)> run = {};
  // The same for DeviceMeter::SecondsWithoutHost; none where the host takes a part.
  std::function<void(int turn)> on_device = {};
  int num_turns = 1;  // after which the first copy is read again
  // Milliseconds of one call by the library of the device's maker, in whatever order of sums is
  // fastest (DeviceMeter::ReferenceProduct).
  double reference_ms = NAN;
};

// An operation that a device can do without the host.
Operation Enqueued(Operation operation, std::function<void(int turn)> enqueue,
                   size_t num_turns = 1);

struct OperationResult {
  Operation operation;
  LimitedTime time;  // of_limit and bound: where there are limits
  double device_ms = NAN;

  // By the device's time, else by the host's.
  double best_ms() const { return std::isfinite(device_ms) ? device_ms : time.ms; }
  double bytes_per_second() const { return operation.demand.bytes / (best_ms() * 1e-3); }
  double flops_per_second() const { return operation.demand.flops / (best_ms() * 1e-3); }
};

// Times compared with one row of one sequence of the same, which comes first.
class OneRow {
 public:
  // NaN if there was none.
  double Of(const OperationResult& result);

 private:
  using Key = std::tuple<std::string_view, std::string_view, int>;  // op, part, context
  std::map<Key, double> ms_;
};

struct RunOptions {
  int repeat = 7;
  double sample_seconds = 4e-3;  // that a sample takes at least
};

// Runs operations in turns, `repeat` samples of each. Times are medians of one call: by the host's
// clock, calls enqueued one after the other, and where the backend has a meter recorded and
// replayed. Each sample is compared with `limits`, if any, measured right after it.
absl::Status RunInTurns(std::vector<Operation> operations, const RunOptions& options,
                        Backend* backend, MachineLimits* limits,
                        absl::FunctionRef<void(const OperationResult&)> on_result);

}  // namespace tandem

#endif  // TANDEM_BENCH_OPERATION_H_
