#include "bench/bench_device.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "absl/algorithm/container.h"
#include "base/process_limits.h"
#include "base/status_macros.h"
#include "base/thread_pool.h"
#include "bench/measuring.h"
#include "bench/random_passes.h"
#include "kernels/device_meter.h"
#include "kernels/row_sums.h"
#include "kernels/sampler.h"
#include "tools/bandwidth.h"
#include "tools/spread.h"

namespace tandem {
namespace {

bool Wants(const DeviceBenchmarkOptions& options, std::string_view op) {
  return absl::c_linear_search(options.ops, op);
}

class DeviceBenchmark {
 public:
  DeviceBenchmark(const DeviceBenchmarkOptions& options, Backend* backend,
                  absl::FunctionRef<void(const DeviceResult&)> on_result)
      : options_(options),
        backend_(*backend),
        meter_(backend->meter()),
        sampler_(backend->sampler()),
        on_result_(on_result) {}

  absl::Status Run() {
    RETURN_IF_ERROR(MeasureMemory());
    const int max_rows =
        std::max(*absl::c_max_element(options_.rows), *absl::c_max_element(options_.batches));
    ASSIGN_OR_RETURN(passes_, RandomPasses::Create(options_.shape, options_.quantized,
                                                   options_.kv_dtype, max_rows, &backend_));
    if (Wants("sampling") && sampler_ != nullptr) {
      for (const int rows : options_.rows) RETURN_IF_ERROR(RunSampling(rows));
    }
    if (Wants("product")) RETURN_IF_ERROR(RunProducts());
    for (const int context : options_.contexts) {
      for (const int rows : options_.rows) RETURN_IF_ERROR(RunSequences(1, context, rows));
      for (const int batch : options_.batches) {
        if (batch > 1) RETURN_IF_ERROR(RunSequences(batch, context, 1));
      }
    }
    return absl::OkStatus();
  }

 private:
  bool Wants(std::string_view op) const { return tandem::Wants(options_, op); }

  // Times `enqueue`, which makes `calls` calls of what `result` describes. What waits for the
  // device cannot be recorded.
  absl::Status Measure(DeviceResult result, int calls, absl::FunctionRef<void()> enqueue,
                       bool waits = false) {
    std::vector<double> ms;
    std::vector<double> device_ms;
    enqueue();  // scratch memory, clocks
    RETURN_IF_ERROR(backend_.Synchronize());
    const BenchClock::time_point once = BenchClock::now();
    enqueue();
    RETURN_IF_ERROR(backend_.Synchronize());
    const double seconds = std::max(SecondsSince(once), 1e-7);
    const int times =
        static_cast<int>(std::clamp(std::ceil(options_.sample_seconds / seconds), 1.0, 10000.0));
    for (int i = 0; i < options_.repeat; ++i) {
      const BenchClock::time_point start = BenchClock::now();
      for (int j = 0; j < times; ++j) enqueue();
      RETURN_IF_ERROR(backend_.Synchronize());
      ms.push_back(1e3 * SecondsSince(start) / times / calls);
      if (meter_ == nullptr || waits) continue;
      const absl::StatusOr<double> alone = meter_->SecondsWithoutHost(enqueue, times);
      if (absl::IsUnimplemented(alone.status())) continue;
      RETURN_IF_ERROR(alone.status());
      device_ms.push_back(1e3 * *alone / calls);
    }
    result.ms = SpreadOf(ms).median;
    result.device_ms = device_ms.empty() ? NAN : SpreadOf(device_ms).median;
    if (result.op == "read") read_bytes_per_second_ = result.bytes / result.best_ms() * 1e3;
    result.read_bytes_per_second = read_bytes_per_second_;
    on_result_(result);
    return absl::OkStatus();
  }

  absl::Status MeasureMemory() {
    const auto bytes = static_cast<size_t>(options_.buffer_bytes) / 256 * 256;
    if (meter_ == nullptr) {
      ThreadPool pool(NumUsableCores());
      ASSIGN_OR_RETURN(const ReadBandwidth read,
                       MeasureReadBandwidth(options_.buffer_bytes, &pool));
      read_bytes_per_second_ = read.bytes_per_second;
      on_result_({.op = "read",
                  .part = "",
                  .bytes = static_cast<double>(read.buffer_bytes),
                  .ms = 1e3 * static_cast<double>(read.buffer_bytes) / read.bytes_per_second,
                  .device_ms = NAN,
                  .read_bytes_per_second = read.bytes_per_second});
    }
    ASSIGN_OR_RETURN(const Buffer buffer, backend_.Allocate(bytes));
    auto* const data = static_cast<std::byte*>(buffer.data());
    if (meter_ != nullptr) {
      ASSIGN_OR_RETURN(const Buffer sums,
                       backend_.Allocate(meter_->NumReadSums(bytes) * sizeof(uint32_t)));
      // What was never written may be no memory yet.
      backend_.Copy(data, data + bytes / 2, bytes / 2);
      backend_.Copy(data + bytes / 2, data, bytes / 2);
      RETURN_IF_ERROR(
          Measure({.op = "read", .part = "", .bytes = static_cast<double>(bytes)}, 1,
                  [&] { meter_->Read(data, bytes, static_cast<uint32_t*>(sums.data())); }));
    }
    return Measure({.op = "copy", .part = "", .bytes = static_cast<double>(bytes)}, 1,
                   [&] { backend_.Copy(data, data + bytes / 2, bytes / 2); });
  }

  absl::Status RunProducts() {
    for (int part = 0; part <= kNumLayerParts; ++part) {
      const bool is_head = part == kNumLayerParts;
      const auto layer_part = static_cast<LayerPart>(part);
      const PackedWeight& weight = is_head ? passes_->head() : passes_->weight(layer_part);
      for (const int rows : options_.rows) {
        DeviceResult result{.op = "product",
                            .part = is_head ? "head" : kLayerPartNames[part],
                            .rows = rows,
                            .batch = 1,
                            .bytes = static_cast<double>(weight.bytes_read),
                            .flops = 2.0 * rows * weight.outputs * weight.inputs};
        const int calls = is_head ? 1 : passes_->num_layers();
        ASSIGN_OR_RETURN(result.reference_ms, ReferenceMs(rows, calls, [&](int call) {
                           return is_head ? &weight : &passes_->weight(layer_part, call);
                         }));
        RETURN_IF_ERROR(Measure(result, calls, [&] {
          for (int call = 0; call < calls; ++call) {
            if (is_head) {
              passes_->Head(rows);
            } else {
              passes_->Product(layer_part, call, rows);
            }
          }
        }));
      }
    }
    return absl::OkStatus();
  }

  // One call's time of the reference product with weights of so many calls, whose bytes are numbers
  // in any order.
  absl::StatusOr<double> ReferenceMs(int rows, int calls,
                                     absl::FunctionRef<const PackedWeight*(int)> weight_of) {
    const PackedWeight& first = *weight_of(0);
    if (meter_ == nullptr || first.dtype != DType::kBF16) return NAN;
    const size_t x_bytes = sizeof(uint16_t) * rows * first.inputs;
    ASSIGN_OR_RETURN(const Buffer x, backend_.Allocate(x_bytes));
    ASSIGN_OR_RETURN(const Buffer out,
                     backend_.Allocate(sizeof(float) * rows * static_cast<size_t>(first.outputs)));
    const size_t weight_bytes = first.data.size_bytes();
    for (size_t at = 0; at < x_bytes; at += weight_bytes) {
      backend_.Copy(first.data.data(), static_cast<std::byte*>(x.data()) + at,
                    std::min(weight_bytes, x_bytes - at));
    }
    absl::Status failure;
    const auto enqueue = [&] {
      for (int call = 0; call < calls; ++call) {
        failure.Update(meter_->ReferenceProduct(
            {x.data(), DType::kBF16, rows, first.inputs, first.inputs},
            {weight_of(call)->data.data(), DType::kBF16, first.outputs, first.inputs, first.inputs},
            {out.data(), DType::kF32, rows, first.outputs, first.outputs}));
      }
    };
    enqueue();
    if (absl::IsUnimplemented(failure)) return NAN;
    RETURN_IF_ERROR(failure);
    ASSIGN_OR_RETURN(const double seconds, meter_->SecondsWithoutHost(enqueue, options_.repeat));
    RETURN_IF_ERROR(failure);
    return 1e3 * seconds / calls;
  }

  // Of `rows` rows at once, as of a draft that is verified.
  absl::Status RunSampling(int rows) {
    const int size = options_.shape.vocab;
    const double row_bytes = sizeof(float) * static_cast<double>(size) * rows;
    ASSIGN_OR_RETURN(const Buffer target, backend_.Allocate(static_cast<size_t>(row_bytes)));
    ASSIGN_OR_RETURN(const Buffer draft, backend_.Allocate(static_cast<size_t>(row_bytes)));
    std::vector<RowState> states(rows);
    std::vector<SlotAnswer> answers(rows);
    absl::Status failure;
    const auto make = [&](const Buffer& to, float inverse_temperature, float top_p) {
      std::vector<RowTask> tasks;
      for (int i = 0; i < rows; ++i) {
        const int64_t first = int64_t{i} * size;
        tasks.push_back({.logits = passes_->logits() + first,
                         .probs = static_cast<float*>(to.data()) + first,
                         .size = size,
                         .inverse_temperature = inverse_temperature,
                         .enough = top_p < 1.0f ? UnitsToReach(top_p) : 0});
      }
      failure.Update(sampler_->Sample(tasks, {}, absl::MakeSpan(states), {}));
    };
    const auto ask = [&](SlotDraw draw) {
      std::vector<SlotTask> tasks;
      for (int i = 0; i < rows; ++i) {
        const int64_t first = int64_t{i} * size;
        tasks.push_back({.target = static_cast<const float*>(target.data()) + first,
                         .draft = static_cast<const float*>(draft.data()) + first,
                         .target_size = size,
                         .draft_size = size,
                         .token = 0,
                         .draw = draw});
      }
      failure.Update(sampler_->Sample({}, tasks, {}, absl::MakeSpan(answers)));
    };
    const auto result = [&](std::string_view part, double bytes) {
      return DeviceResult{.op = "sampling", .part = part, .rows = rows, .batch = 1, .bytes = bytes};
    };
    constexpr bool kWaits = true;
    // Logits within +-1: their spread becomes that of a language model's.
    RETURN_IF_ERROR(Measure(
        result("top_p", row_bytes), 1, [&] { make(draft, 10.0f, 0.95f); }, kWaits));
    make(draft, 9.0f, 1.0f);
    RETURN_IF_ERROR(Measure(
        result("softmax", row_bytes), 1, [&] { make(target, 10.0f, 1.0f); }, kWaits));
    RETURN_IF_ERROR(Measure(
        result("draw", row_bytes), 1, [&] { ask(SlotDraw::kTarget); }, kWaits));
    RETURN_IF_ERROR(Measure(
        result("residual", 2 * row_bytes), 1, [&] { ask(SlotDraw::kTokenResidual); }, kWaits));
    return failure;
  }

  absl::Status RunSequences(int batch, int context, int rows) {
    if (!Wants("attention") && !Wants("pass")) return absl::OkStatus();
    RETURN_IF_ERROR(passes_->SetSequences(batch, context, rows));
    const RandomModelShape& s = options_.shape;
    const double attention_flops =
        4.0 * batch * rows * (context + 0.5 * (rows + 1)) * s.heads * s.head_dim;
    DeviceResult result{.op = "attention",
                        .part = "",
                        .rows = rows,
                        .batch = batch,
                        .context = context,
                        .bytes = passes_->attention_bytes(),
                        .flops = attention_flops};
    // A step of one call would tell of launching only.
    if (Wants("attention") && context > 0) {
      RETURN_IF_ERROR(Measure(result, passes_->num_layers(), [&] {
        for (int layer = 0; layer < passes_->num_layers(); ++layer) passes_->Attention(layer);
      }));
    }
    if (!Wants("pass")) return absl::OkStatus();
    result.op = "pass";
    result.part = rows == 1 ? "decode" : "verify";
    result.bytes = passes_->bytes_per_pass() + passes_->attention_bytes() * passes_->num_layers();
    result.flops =
        attention_flops * passes_->num_layers() + 2.0 * batch * rows * passes_->weights_per_pass();
    return Measure(result, 1, [&] { passes_->Pass(); });
  }

  const DeviceBenchmarkOptions& options_;
  Backend& backend_;
  DeviceMeter* const meter_;  // or null
  Sampler* const sampler_;    // likewise
  absl::FunctionRef<void(const DeviceResult&)> on_result_;
  std::unique_ptr<RandomPasses> passes_;
  double read_bytes_per_second_ = 0.0;
};

}  // namespace

double DeviceResult::best_ms() const { return std::isfinite(device_ms) ? device_ms : ms; }

int NumDeviceResults(const DeviceBenchmarkOptions& options, Backend* backend) {
  constexpr int kMemory = 2;  // reading and copying
  constexpr int kSampling = 4;
  const int num_rows = static_cast<int>(options.rows.size());
  int count = kMemory;
  if (Wants(options, "sampling") && backend->sampler() != nullptr) count += kSampling * num_rows;
  if (Wants(options, "product")) count += (kNumLayerParts + 1) * num_rows;
  const int num_sequences =
      num_rows + static_cast<int>(absl::c_count_if(options.batches, [](int n) { return n > 1; }));
  for (const int context : options.contexts) {
    if (Wants(options, "attention") && context > 0) count += num_sequences;
    if (Wants(options, "pass")) count += num_sequences;
  }
  return count;
}

absl::Status RunDeviceBenchmark(const DeviceBenchmarkOptions& options, Backend* backend,
                                absl::FunctionRef<void(const DeviceResult&)> on_result) {
  return DeviceBenchmark(options, backend, on_result).Run();
}

}  // namespace tandem
