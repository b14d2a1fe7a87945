// The device of a run: its memory, its pools of random numbers, and the clock of measurements.
#ifndef TANDEM_TOOLS_KERNEL_LAB_LAB_H_
#define TANDEM_TOOLS_KERNEL_LAB_LAB_H_

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/device.h"
#include "tools/kernel_lab/json_line.h"
#include "tools/kernel_lab/lines.h"
#include "tools/kernel_lab/pool.h"

namespace tandem::kernel_lab {

// Seconds of a replay.
struct Timing {
  double median = 0.0;
  double min = 0.0;
};

// Thread-compatible. After the first failure of a line, calls of the device do nothing until
// TakeFailure.
class Lab {
 public:
  // Returns null and sets `error` without a device of compute capability 8.0 or later.
  static std::unique_ptr<Lab> Open(int device, bool quick, std::string* error);
  ~Lab();
  Lab(const Lab&) = delete;
  Lab& operator=(const Lab&) = delete;

  bool quick() const { return quick_; }
  const cuda::DeviceProperties& properties() const { return properties_; }
  int num_sms() const { return properties_.num_sms; }
  cuda::Stream stream() const { return stream_; }

  void Note(cuda::Error error, const char* what);
  // Enqueues an operation of kernels/cuda/operations.h, or one of kernel_lab's.
  template <typename Task>
  void Run(const Task& task, const char* what) {
    if (ok()) Note(Launch(task, stream_), what);
  }
  void Fail(const std::string& failure);
  bool ok() const { return failure_.empty(); }
  // Returns the first failure since the last call, or an empty string.
  std::string TakeFailure();
  // Whether the device still works: an illegal access, for example, is not forgotten.
  bool StillWorks();

  // Memory until FreeMemory. Returns null after a failure.
  void* Allocate(size_t bytes);
  void FreeMemory();
  template <typename T>
  T* Upload(const std::vector<T>& values) {
    void* const to = Allocate(values.size() * sizeof(T));
    if (ok()) Note(cuda::CopyIn(values.data(), to, values.size() * sizeof(T), stream_), "upload");
    return static_cast<T*>(to);
  }
  template <typename T>
  std::vector<T> Download(const void* from, size_t count) {
    std::vector<T> values(count);
    if (ok()) Note(cuda::CopyOut(from, values.data(), count * sizeof(T), stream_), "download");
    return values;
  }
  // Fills memory with kPoison, a NaN that no operation returns.
  void Poison(void* data, size_t bytes);
  void Copy(const void* from, void* to, size_t bytes);
  void Wait();

  // Pools live as long as the lab. Each is large enough for any line.
  const Pool& Floats();  // deviation 1
  const Pool& Weights(DType dtype);
  const Pool& Cache(KvDType dtype, int head_dim);
  // Returns the offset of the `index`-th stretch of `bytes` in a pool; stretches repeat.
  size_t Stretch(const Pool& pool, int index, size_t bytes);
  void* At(const Pool& pool, size_t offset) const {
    return static_cast<std::byte*>(pool.device) + offset;
  }

  // Records what `enqueue` enqueues as a graph, and measures its replays.
  Timing Time(const std::function<void()>& enqueue);
  // Bytes per second of reading memory, measured at the first call.
  double Bandwidth();

 private:
  Lab(bool quick, const cuda::DeviceProperties& properties, cuda::Stream stream)
      : quick_(quick), properties_(properties), stream_(stream) {}
  const Pool& Filled(const std::string& name, size_t bytes,
                     const std::function<Pool(size_t)>& make);
  // Fills [filled, bytes) of `data` with copies of its first `filled` bytes.
  void Repeat(void* data, size_t filled, size_t bytes);
  double SecondsOf(cuda::Recording recording, int replays);

  const bool quick_;
  const cuda::DeviceProperties properties_;
  cuda::Stream stream_;
  std::string failure_;
  std::vector<void*> allocated_;
  std::map<std::string, Pool> pools_;
  double bandwidth_ = 0.0;
};

inline constexpr uint32_t kPoison = 0x7FBADBAD;

// Adds the time of one of `count` equal parts of a replay, each of which reads `bytes` of memory.
void AddTiming(Lab& lab, const Timing& timing, int count, double bytes, JsonLine* json);
// Measures a replay of `count` parts, which `enqueue` enqueues, and adds the time of one. Returns
// its seconds.
double TimeParts(Lab& lab, int count, double bytes, const std::function<void(int)>& enqueue,
                 JsonLine* json);

// Counts differing words. A word of `got` that is still poisoned differs from everything.
struct Comparison {
  int64_t compared = 0;
  int64_t mismatches = 0;

  void Compare(const std::vector<uint32_t>& got, const std::vector<uint32_t>& want);
  // For numbers that an order of sums or a rounding may change by at most `bound`.
  void CompareNear(double got, double want, double bound);
};
void AddComparison(const Comparison& comparison, JsonLine* json);

// Each measures a line and adds its results. Failures are noted in the lab.
void MeasureBandwidth(Lab& lab, const Line& line, JsonLine* json);
void MeasureProduct(Lab& lab, const Line& line, JsonLine* json);
void MeasurePack(Lab& lab, const Line& line, JsonLine* json);
void MeasureBits(Lab& lab, const Line& line, JsonLine* json);
void MeasureProbe(Lab& lab, const Line& line, JsonLine* json);
void MeasureAttention(Lab& lab, const Line& line, JsonLine* json);
void MeasureSampling(Lab& lab, const Line& line, JsonLine* json);
void MeasurePass(Lab& lab, const Line& line, JsonLine* json);
void MeasureFault(Lab& lab, const Line& line, JsonLine* json);

}  // namespace tandem::kernel_lab

#endif  // TANDEM_TOOLS_KERNEL_LAB_LAB_H_
