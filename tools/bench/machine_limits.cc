#include "tools/bench/machine_limits.h"

#include <algorithm>
#include <fstream>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/format.h"
#include "base/instant.h"
#include "base/status_macros.h"
#include "model/checkpoint/model_tensors.h"
#include "tandem/json_value.h"
#include "tools/bench/bench_commands.h"
#include "tools/table.h"

namespace tandem {
namespace {

using OrderedJson = JsonValue;

// Untimed warm-up: threads that wake up may share a core at first, which halved the speed of two,
// and caches still hold the data of earlier work.
constexpr double kWarmUpSeconds = 3e-3;
constexpr int kTries = 3;  // per limit; the best counts, because other load only slows it down
constexpr int64_t kPartBytes = 32 << 20;
constexpr int kCountersPerLine = 8;

double SecondsSince(Instant start) { return absl::ToDoubleSeconds(Instant::Now() - start); }

// Returns the best of kTries measurements after a warm-up.
double BestOf(absl::FunctionRef<double()> measure) {
  const Instant start = Instant::Now();
  while (SecondsSince(start) < kWarmUpSeconds) measure();
  double best = 0.0;
  for (int i = 0; i < kTries; ++i) best = std::max(best, measure());
  return best;
}

}  // namespace

absl::StatusOr<std::unique_ptr<MachineLimits>> MachineLimits::Create(int num_threads,
                                                                     int64_t memory_bytes) {
  std::unique_ptr<MachineLimits> limits(new MachineLimits(num_threads));
  const int num_parts = static_cast<int>(std::max<int64_t>(1, memory_bytes / kPartBytes));
  ASSIGN_OR_RETURN(limits->memory_, ReadBuffer::Create(memory_bytes, num_parts, &limits->pool_));
  if (const int64_t cache_bytes = LastLevelCacheBytes(); cache_bytes > 0) {
    // Use half of the cache: other programs use the rest.
    ASSIGN_OR_RETURN(limits->cache_, ReadBuffer::Create(cache_bytes / 2, 1, &limits->pool_));
  }
  return limits;
}

double MachineLimits::Measure(Place place) {
  ReadBuffer* buffer = place == Place::kCache && cache_ != nullptr ? cache_.get() : memory_.get();
  const double bytes_per_second = BestOf([&] { return buffer->ReadPart(); });
  read_samples_[static_cast<int>(place)].push_back(bytes_per_second);
  return bytes_per_second;
}

double MachineLimits::Measure(DotInput input) {
  constexpr int64_t kSteps = 64 * 1024;
  std::vector<int64_t> done(pool_.num_threads() * kCountersPerLine);
  const double flops = BestOf([&] {
    const Instant start = Instant::Now();
    pool_.Run(
        [&](int thread) { done[thread * kCountersPerLine] = RunMultiplyAdds(input, kSteps); });
    const double seconds = SecondsSince(start);
    double total = 0.0;
    for (const int64_t count : done) total += 2.0 * static_cast<double>(count);
    return total / seconds;
  });
  flops_samples_[static_cast<int>(input)].push_back(flops);
  return flops;
}

void MachineLimits::AddTime(const Demand& demand, double seconds, Series* series) {
  const double reading = demand.bytes > 0 ? demand.bytes / Measure(demand.place) : 0.0;
  const double arithmetic = demand.flops > 0 ? demand.flops / Measure(demand.input) : 0.0;
  series->Add(seconds, reading, arithmetic, demand.place);
}

void MachineLimits::Series::Add(double seconds, double min_reading, double min_arithmetic,
                                Place place) {
  ms_.push_back(1e3 * seconds);
  of_limit_.push_back(std::max(min_reading, min_arithmetic) / seconds);
  min_reading_ += min_reading;
  min_arithmetic_ += min_arithmetic;
  place_ = place;
}

LimitedTime MachineLimits::Series::Result() const {
  TANDEM_CHECK(!ms_.empty());
  LimitedTime result{.ms = SpreadOf(ms_).median, .of_limit = SpreadOf(of_limit_).median};
  result.bound = min_arithmetic_ > min_reading_ ? "arithmetic"
                 : place_ == Place::kCache      ? "cache"
                                                : "memory";
  return result;
}

template <typename Limit>
double MachineLimits::Median(Limit limit, const std::vector<double>& samples) {
  while (samples.size() < 3) Measure(limit);
  return SpreadOf(samples).median;
}

std::optional<double> MachineLimits::BytesPerSecond(Place place) {
  if (place == Place::kCache && cache_ == nullptr) return std::nullopt;
  return Median(place, read_samples_[static_cast<int>(place)]);
}

std::optional<double> MachineLimits::FlopsPerSecond(DotInput input) {
  if (!Has(input)) return std::nullopt;
  return Median(input, flops_samples_[static_cast<int>(input)]);
}

OrderedJson MachineLimits::ToJson() {
  OrderedJson flops = OrderedJson::object();
  for (const DotInput input : kAllDotInputs) {
    flops[NameOf(input)] = OrNull(FlopsPerSecond(input));
  }
  return {{"read_bytes_per_second",
           {{"dram", OrNull(BytesPerSecond(Place::kMemory))},
            {"cache", OrNull(BytesPerSecond(Place::kCache))}}},
          {"flops", flops},
          {"buffer_bytes",
           {{"dram", memory_->bytes()},
            {"cache", cache_ == nullptr ? OrderedJson(nullptr) : OrderedJson(cache_->bytes())}}}};
}

std::string MachineLimits::ToText() {
  std::string text = Format("%d threads read memory at %.1f GB/s", num_threads(),
                            *BytesPerSecond(Place::kMemory) * 1e-9);
  if (const auto cache = BytesPerSecond(Place::kCache); cache.has_value()) {
    text += Format(", the last-level cache at %.1f GB/s", *cache * 1e-9);
  }
  absl::StrAppend(&text, "; multiply-adds per second:");
  for (const DotInput input : kAllDotInputs) {
    if (const auto flops = FlopsPerSecond(input); flops.has_value()) {
      text += Format(" %s %.0f G", NameOf(input), *flops / 2 * 1e-9);
    }
  }
  return text + "\n";
}

DotInput DotInputOf(DType weight, bool bf16_products) {
  if (weight == DType::kBF16 && bf16_products) return DotInput::kBF16;
  return IsBlocks(weight) && MachineLimits::Has(DotInput::kInt8) ? DotInput::kInt8 : DotInput::kF32;
}

bool UsesBf16Products(CpuCompute compute) {
  return compute != CpuCompute::kF32 && HasBf16Products(CpuIsas().front());
}

std::string CpuName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::pair<absl::string_view, absl::string_view> field =
        absl::StrSplit(line, absl::MaxSplits(':', 1));
    if (absl::StripAsciiWhitespace(field.first) == "model name") {
      return std::string(absl::StripAsciiWhitespace(field.second));
    }
  }
  return "unknown";
}

PassCounter::PassCounter(const ModelConfig& config, int64_t bytes_read, int64_t kv_bytes,
                         DType dtype, bool bf16_products)
    : bytes_read_(static_cast<double>(bytes_read)),
      kv_bytes_(static_cast<double>(kv_bytes)),
      place_(MachineLimits::PlaceOf(bytes_read)),
      input_(DotInputOf(dtype, bf16_products)) {
  for (const TensorSpec& tensor : TensorsOf(config)) {
    body_elements_ += ShareRead(tensor, config) * static_cast<double>(tensor.num_elements());
  }
  head_elements_ = static_cast<double>(config.vocab_size) * config.hidden_size;
  body_elements_ -= head_elements_;
  attended_elements_ = 2.0 * config.num_layers * config.num_heads * config.head_dim;
}

Demand PassCounter::Of(const PassShape& pass) const {
  // Row r sees context + r + 1 tokens.
  const double seen = pass.rows * (pass.context + 0.5 * (pass.rows + 1));
  const double products =
      body_elements_ * pass.rows + head_elements_ * pass.logit_rows + attended_elements_ * seen;
  return {.bytes = bytes_read_ + kv_bytes_ * pass.batch * pass.context,
          .place = place_,
          .flops = 2.0 * pass.batch * products,
          .input = input_};
}

Demand PassCounter::OfPrompt(int num_tokens, int chunk_tokens) const {
  Demand sum{.bytes = 0.0, .place = place_, .flops = 0.0, .input = input_};
  for (int begin = 0; begin < num_tokens; begin += chunk_tokens) {
    const int end = std::min(begin + chunk_tokens, num_tokens);
    const Demand chunk =
        Of({.rows = end - begin, .context = begin, .logit_rows = end == num_tokens ? 1 : 0});
    sum.bytes += chunk.bytes;
    sum.flops += chunk.flops;
  }
  return sum;
}

}  // namespace tandem
