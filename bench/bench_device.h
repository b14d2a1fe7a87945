// Measures the operations and the passes of a model with random weights on any device, beside how
// fast the same device reads memory. Weights are made where they are read: no files.
#ifndef TANDEM_BENCH_BENCH_DEVICE_H_
#define TANDEM_BENCH_BENCH_DEVICE_H_

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "tools/checkpoints/random_model.h"

namespace tandem {

inline constexpr std::string_view kDeviceOps[] = {"product", "attention", "pass", "sampling"};

struct DeviceBenchmarkOptions {
  std::string name;  // of the shape
  RandomModelShape shape;
  std::vector<std::string_view> ops;  // of kDeviceOps
  std::vector<int> rows;             // of one sequence: products, attention, verification, sampling
  std::vector<int> batches;          // sequences of one row each: decoding
  std::vector<int> contexts;         // tokens before the rows
  std::optional<DType> quantized{};  // of the weights
  KvDType kv_dtype = KvDType::kBF16;
  int repeat = 7;
  double sample_seconds = 0.02;             // that a sample takes at least
  int64_t buffer_bytes = int64_t{4} << 30;  // to read and to copy
};

// One thing measured: a line of the report. Times are medians of one call. Those of products and
// attention are of a layer, all layers in turns, so that no cache holds what they read.
struct DeviceResult {
  std::string_view op;  // "read", "copy", "product", "attention", "pass", "sampling"
  // Of a product: "qkv", ...; of a pass: "decode", "verify"; of sampling, which is measured where
  // rows stay on the device and with the small copies to the host and back: "softmax", "top_p" (of
  // .95), "draw" and "residual".
  std::string_view part;
  int rows = 0;  // of a sequence
  int batch = 0;
  int context = 0;
  double bytes = 0.0;  // that it must read (a copy: reads and writes)
  double flops = 0.0;
  double ms = 0.0;         // called one after the other, the host waiting at the end
  double device_ms = 0.0;  // recorded and replayed, without the host; NaN where there is no such
  // A product of bf16 of that shape by the library of the device's maker, in whatever order of sums
  // is fastest (DeviceMeter::ReferenceProduct); NaN where there is none.
  double reference_ms = std::numeric_limits<double>::quiet_NaN();
  double read_bytes_per_second = 0.0;  // of the device, just before

  // By the device's time, else by the host's.
  double best_ms() const;
  double bytes_per_second() const { return bytes / (best_ms() * 1e-3); }
  double reference_flops_per_second() const { return flops / (reference_ms * 1e-3); }
  double flops_per_second() const { return flops / (best_ms() * 1e-3); }
  // The share of the bandwidth that was measured.
  double of_read() const { return bytes_per_second() / read_bytes_per_second; }
};

// How many results RunDeviceBenchmark gives on this backend.
int NumDeviceResults(const DeviceBenchmarkOptions& options, Backend* backend);

// Reading and copying come first. `on_result` gets each result as soon as there is one: a run that
// is cut short has said all it knows. RESOURCE_EXHAUSTED if there is not enough memory.
absl::Status RunDeviceBenchmark(const DeviceBenchmarkOptions& options, Backend* backend,
                                absl::FunctionRef<void(const DeviceResult&)> on_result);

}  // namespace tandem

#endif  // TANDEM_BENCH_BENCH_DEVICE_H_
