#include "tools/kernel_lab/lab.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "kernels/cuda/launch_shapes.h"

namespace tandem::kernel_lab {
namespace {

constexpr int kMinMajor = 8;
constexpr size_t kPatternBytes = size_t{8} << 20;
constexpr size_t kQuickPatternBytes = size_t{64} << 10;
constexpr size_t kQuickPoolBytes = size_t{1} << 20;
// The largest weight (the head of Llama-8B), and a cache of 64 sequences of 4,224 tokens.
constexpr size_t kLargestWeight = size_t{2} * 128256 * 4096;
constexpr size_t kCachePoolBytes = size_t{5} << 28;
constexpr size_t kFloatPoolBytes = size_t{4} * 2048 * 28672 + (size_t{1} << 20);

}  // namespace

std::unique_ptr<Lab> Lab::Open(int device, bool quick, std::string* error) {
  cuda::DeviceProperties properties;
  cuda::Stream stream = nullptr;
  const cuda::Error opened = cuda::OpenDevice(device, &properties, &stream);
  if (opened != cuda::kNoError) {
    *error = "cuda:" + std::to_string(device) + ": " + cuda::ErrorText(opened);
    return nullptr;
  }
  if (properties.major < kMinMajor) {
    cuda::CloseDevice(stream);
    *error = "cuda:" + std::to_string(device) + ": compute capability 8.0 or later is required";
    return nullptr;
  }
  return std::unique_ptr<Lab>(new Lab(quick, properties, stream));
}

Lab::~Lab() {
  FreeMemory();
  for (auto& [name, pool] : pools_) cuda::Free(stream_, pool.device);
  cuda::CloseDevice(stream_);
}

void Lab::Note(cuda::Error error, const char* what) {
  if (error != cuda::kNoError) Fail(std::string(what) + ": " + cuda::ErrorText(error));
}

void Lab::Fail(const std::string& failure) {
  if (failure_.empty()) failure_ = failure;
}

std::string Lab::TakeFailure() { return std::exchange(failure_, ""); }

bool Lab::StillWorks() { return cuda::Wait(stream_) == cuda::kNoError; }

void* Lab::Allocate(size_t bytes) {
  if (!ok()) return nullptr;
  void* data = nullptr;
  Note(cuda::Allocate(stream_, bytes, &data), "allocation");
  if (data != nullptr) allocated_.push_back(data);
  return data;
}

void Lab::FreeMemory() {
  for (void* const data : allocated_) cuda::Free(stream_, data);
  allocated_.clear();
}

void Lab::Copy(const void* from, void* to, size_t bytes) {
  if (ok()) Note(cuda::CopyWithin(from, to, bytes, stream_), "copy");
}

void Lab::Wait() {
  if (ok()) Note(cuda::Wait(stream_), "waiting");
}

void Lab::Repeat(void* data, size_t filled, size_t bytes) {
  while (filled < bytes) {
    const size_t count = std::min(filled, bytes - filled);
    Copy(data, static_cast<std::byte*>(data) + filled, count);
    filled += count;
  }
}

void Lab::Poison(void* data, size_t bytes) {
  if (!ok()) return;
  const std::vector<uint32_t> poison(std::min<size_t>(bytes / 4, 4096), kPoison);
  Note(cuda::CopyIn(poison.data(), data, poison.size() * 4, stream_), "poisoning");
  Repeat(data, poison.size() * 4, bytes);
}

const Pool& Lab::Filled(const std::string& name, size_t bytes,
                        const std::function<Pool(size_t)>& make) {
  Pool& pool = pools_[name];
  if (pool.device != nullptr || !ok()) return pool;
  pool = make(quick_ ? kQuickPatternBytes : kPatternBytes);
  pool.bytes = std::max(quick_ ? kQuickPoolBytes : bytes, pool.pattern.size());
  Note(cuda::Allocate(stream_, pool.bytes, &pool.device), "allocation of a pool");
  if (!ok()) return pool;
  Note(cuda::CopyIn(pool.pattern.data(), pool.device, pool.pattern.size(), stream_), "upload");
  Repeat(pool.device, pool.pattern.size(), pool.bytes);
  Wait();
  return pool;
}

const Pool& Lab::Floats() {
  return Filled("floats", kFloatPoolBytes,
                [](size_t bytes) { return RandomFloats(bytes, 1.0f, 1); });
}

const Pool& Lab::Weights(DType dtype) {
  if (!IsBlocks(dtype)) {
    return Filled("bf16", kLargestWeight + kCopyBytes,
                  [](size_t bytes) { return RandomBf16(bytes, 0.03f, 2); });
  }
  // No block format has more than 9 bits an element.
  return Filled(NameOf(dtype), kLargestWeight / 16 * 9 + kCopyBytes,
                [dtype](size_t bytes) { return RandomPieces(dtype, bytes, 3); });
}

const Pool& Lab::Cache(KvDType dtype, int head_dim) {
  if (dtype == KvDType::kInt8) {
    return Filled(
        "int8 cache of heads of " + std::to_string(head_dim), kCachePoolBytes,
        [head_dim](size_t bytes) { return RandomKvBlocks(head_dim, kCachePageSize, bytes, 4); });
  }
  return Filled("bf16 cache", kCachePoolBytes,
                [](size_t bytes) { return RandomBf16(bytes, 1.0f, 5); });
}

size_t Lab::Stretch(const Pool& pool, int index, size_t bytes) {
  const size_t whole = (bytes + pool.unit - 1) / pool.unit * pool.unit;
  if (whole > pool.bytes) {
    Fail("a stretch of " + std::to_string(bytes) + " bytes in a pool of " +
         std::to_string(pool.bytes));
    return 0;
  }
  return static_cast<size_t>(index) % (pool.bytes / whole) * whole;
}

double Lab::SecondsOf(cuda::Recording recording, int replays) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < replays && ok(); ++i) Note(cuda::Replay(recording, stream_), "replay");
  Wait();
  return std::chrono::duration<double>(Clock::now() - start).count() / replays;
}

Timing Lab::Time(const std::function<void()>& enqueue) {
  Wait();
  cuda::Recording recording = nullptr;
  if (ok()) Note(cuda::BeginRecording(stream_), "recording");
  if (!ok()) return {};
  enqueue();
  Note(cuda::EndRecording(stream_, &recording), "recording");
  if (!ok()) {
    cuda::Forget(recording);
    return {};
  }
  SecondsOf(recording, 1);  // uploads the recording
  const int num_samples = quick_ ? 1 : kSamples;
  const double once = quick_ ? kSampleSeconds : SecondsOf(recording, 1);
  const int replays = std::clamp(static_cast<int>(kSampleSeconds / std::max(once, 1e-6)), 1, 256);
  std::vector<double> samples;
  for (int i = 0; i < num_samples && ok(); ++i) samples.push_back(SecondsOf(recording, replays));
  cuda::Forget(recording);
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  return {.median = samples[samples.size() / 2], .min = samples.front()};
}

double Lab::Bandwidth() {
  if (bandwidth_ > 0.0) return bandwidth_;
  const Pool& pool = Weights(DType::kBF16);
  if (!ok()) return 0.0;
  const auto num_words4 = static_cast<int64_t>(pool.bytes / 16);
  const size_t num_sums = size_t(cuda::ReadShape(num_words4).x) * cuda::kReadSumsOfBlock;
  const cuda::ReadTask task{.data = pool.device,
                            .num_words4 = num_words4,
                            .sums = static_cast<uint32_t*>(Allocate(num_sums * 4))};
  if (!ok()) return 0.0;
  const Timing timing = Time([&] { Run(task, "reading"); });
  if (ok()) bandwidth_ = static_cast<double>(num_words4) * 16 / timing.min;
  return bandwidth_;
}

void AddTiming(Lab& lab, const Timing& timing, int count, double bytes, JsonLine* json) {
  if (!lab.ok()) return;
  const double median = timing.median / count;
  json->Add("median_us", median * 1e6);
  json->Add("min_us", timing.min / count * 1e6);
  json->Add("copies", count);
  if (bytes <= 0.0) return;
  json->Add("bytes", bytes);
  json->Add("gb_per_s", bytes / median * 1e-9);
  json->Add("share", bytes / median / lab.Bandwidth());
}

double TimeParts(Lab& lab, int count, double bytes, const std::function<void(int)>& enqueue,
                 JsonLine* json) {
  const Timing timing = lab.Time([&] {
    for (int i = 0; i < count && lab.ok(); ++i) enqueue(i);
  });
  AddTiming(lab, timing, count, bytes, json);
  return timing.median / count;
}

void Comparison::Compare(const std::vector<uint32_t>& got, const std::vector<uint32_t>& want) {
  compared += static_cast<int64_t>(got.size());
  for (size_t i = 0; i < got.size(); ++i) mismatches += got[i] != want[i] || got[i] == kPoison;
}

void Comparison::CompareNear(double got, double want, double bound) {
  ++compared;
  mismatches += !(std::abs(got - want) <= bound);
}

void AddComparison(const Comparison& comparison, JsonLine* json) {
  json->Add("compared", comparison.compared);
  json->Add("mismatches", comparison.mismatches);
}

void MeasureFault(Lab& lab, const Line& line, JsonLine* json) {
  if (line.op == "fails") return lab.Fail("a planted failure");
  if (line.op == "crashes") std::abort();
  while (line.op == "hangs") pause();
  const Pool& pool = lab.Floats();
  void* const copy = lab.Allocate(64);
  lab.Poison(copy, 64);
  lab.Copy(pool.device, copy, 60);
  Comparison comparison;
  comparison.Compare(lab.Download<uint32_t>(copy, 16), lab.Download<uint32_t>(pool.device, 16));
  AddComparison(comparison, json);
}

void MeasureBandwidth(Lab& lab, const Line& /*line*/, JsonLine* json) {
  const double bandwidth = lab.Bandwidth();
  if (!lab.ok()) return;
  const auto bytes = static_cast<double>(lab.Weights(DType::kBF16).bytes);
  json->Add("bytes", bytes);
  json->Add("min_us", bytes / bandwidth * 1e6);
  json->Add("gb_per_s", bandwidth * 1e-9);
}

}  // namespace tandem::kernel_lab
