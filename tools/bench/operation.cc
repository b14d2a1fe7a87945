#include "tools/bench/operation.h"

#include <algorithm>
#include <utility>

#include "base/instant.h"
#include "base/status_macros.h"
#include "kernels/backend.h"
#include "tools/table.h"

namespace tandem {
namespace {

// Untimed warm-up: threads that wake up may share a core, which halved the speed of two, caches
// still hold the data of earlier work, and devices allocate their scratch memory.
constexpr double kWarmUpSeconds = 3e-3;
// Operations that take longer than this do not need a warm-up.
constexpr double kLongSeconds = 30e-3;
constexpr int kMaxCalls = 10000;  // per sample

struct Samples {
  int turn = 0;
  MachineLimits::Series series = {};
  std::vector<double> device_ms = {};
};

// Returns the mean seconds per call of `count` consecutive calls.
absl::StatusOr<double> TimeCalls(const Operation& operation, int count, Backend* backend,
                                 int* turn) {
  const Instant start = Instant::Now();
  for (int i = 0; i < count; ++i) RETURN_IF_ERROR(operation.run((*turn)++));
  RETURN_IF_ERROR(backend->Synchronize());
  return absl::ToDoubleSeconds(Instant::Now() - start) / count;
}

absl::Status Sample(const Operation& operation, const RunOptions& options, Backend* backend,
                    MachineLimits* limits, Samples* samples) {
  double warm_up = 0.0;
  int count = 0;
  for (; warm_up < kWarmUpSeconds; ++count) {
    ASSIGN_OR_RETURN(const double seconds, TimeCalls(operation, 1, backend, &samples->turn));
    warm_up += seconds;
  }
  double seconds = warm_up / count;
  const int num_calls = static_cast<int>(
      std::clamp(std::ceil(options.sample_seconds / seconds), 1.0, double{kMaxCalls}));
  if (warm_up <= kLongSeconds || num_calls > count) {
    ASSIGN_OR_RETURN(seconds, TimeCalls(operation, num_calls, backend, &samples->turn));
  }
  if (limits != nullptr) {
    limits->AddTime(operation.demand, seconds, &samples->series);
  } else {
    samples->series.Add(seconds, 0.0, 0.0, operation.demand.place);
  }
  if (backend->meter() == nullptr || !operation.on_device) return absl::OkStatus();
  if (samples->device_ms.empty()) {
    // Recordings cannot make what a device makes at the first use of a weight.
    for (int turn = 0; turn < operation.num_turns; ++turn) operation.on_device(turn);
  }
  const absl::StatusOr<double> on_device = backend->meter()->SecondsWithoutHost(
      [&] {
        for (int turn = 0; turn < operation.num_turns; ++turn) operation.on_device(turn);
      },
      (num_calls + operation.num_turns - 1) / operation.num_turns);
  if (absl::IsUnimplemented(on_device.status())) return absl::OkStatus();
  RETURN_IF_ERROR(on_device.status());
  samples->device_ms.push_back(1e3 * *on_device / operation.num_turns);
  return absl::OkStatus();
}

}  // namespace

std::string_view ShortNameOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kF16:
      return "f16";
    case DType::kBF16:
      return "bf16";
    default:
      return NameOf(dtype);
  }
}

Operation Enqueued(Operation operation, std::function<void(int)> enqueue, size_t num_turns) {
  operation.num_turns = static_cast<int>(num_turns);
  operation.on_device = enqueue;
  operation.run = [enqueue = std::move(enqueue)](int turn) {
    enqueue(turn);
    return absl::OkStatus();
  };
  return operation;
}

double OneRow::Of(const OperationResult& result) {
  const Operation& operation = result.operation;
  // A pass of one row has the part "decode", passes of more rows have others.
  const Key key{operation.op, operation.op == "pass" ? "" : operation.part, operation.context};
  if (operation.rows == 1 && operation.batch == 1) ms_[key] = result.best_ms();
  const auto found = ms_.find(key);
  return found == ms_.end() ? NAN : result.best_ms() / found->second;
}

absl::Status RunInTurns(std::vector<Operation> operations, const RunOptions& options,
                        Backend* backend, MachineLimits* limits,
                        absl::FunctionRef<void(const OperationResult&)> on_result) {
  std::vector<Samples> samples(operations.size());
  for (int i = 0; i < options.repeat; ++i) {
    for (size_t j = 0; j < operations.size(); ++j) {
      if (options.before_sample) RETURN_IF_ERROR(options.before_sample(operations[j]));
      RETURN_IF_ERROR(Sample(operations[j], options, backend, limits, &samples[j]));
    }
  }
  for (size_t j = 0; j < operations.size(); ++j) {
    OperationResult result{.operation = std::move(operations[j]),
                           .time = samples[j].series.Result()};
    if (!samples[j].device_ms.empty()) result.device_ms = SpreadOf(samples[j].device_ms).median;
    on_result(result);
  }
  return absl::OkStatus();
}

}  // namespace tandem
