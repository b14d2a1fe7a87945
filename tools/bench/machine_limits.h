// The limits of every operation on this machine: how fast its threads read, and how fast they
// multiply and add. Also the minimum bytes and operations of a model's pass, computed from its
// sizes.
#ifndef TANDEM_TOOLS_BENCH_MACHINE_LIMITS_H_
#define TANDEM_TOOLS_BENCH_MACHINE_LIMITS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/thread_pool.h"
#include "kernels/backend.h"
#include "kernels/matrix.h"
#include "kernels/peak.h"
#include "model/checkpoint/model_config.h"
#include "tandem/json_value.h"
#include "tools/bandwidth.h"

namespace tandem {

enum class Place { kMemory, kCache };

// The minimum work of an operation. A multiply-add counts as two floating-point operations.
struct Demand {
  double bytes = 0.0;  // read from `place`
  Place place = Place::kMemory;
  double flops = 0.0;  // with inputs of type `input`
  DotInput input = DotInput::kF32;
};

// The times of one operation, each compared with the limits that bound it.
struct LimitedTime {
  double ms = 0.0;                    // median
  double of_limit = 0.0;              // median of (minimum time that the limits allow) / (time)
  std::string_view bound = "memory";  // the limit that takes longest; or "cache", "arithmetic"
};

// The limits of this machine. Its speed changes from one moment to the next, so every timing is
// compared with limits measured right after it, and the limits themselves are medians.
// Thread-compatible.
class MachineLimits {
 public:
  // Allocates `memory_bytes` to read. RESOURCE_EXHAUSTED if that fails.
  static absl::StatusOr<std::unique_ptr<MachineLimits>> Create(
      int num_threads, int64_t memory_bytes = MemoryBufferBytes());

  // Whether this machine has an instruction for products with such inputs.
  static bool Has(DotInput input) { return RunMultiplyAdds(input, 1) > 0; }
  // Returns where an operation that reads the same `bytes` repeatedly finds them.
  static Place PlaceOf(int64_t bytes) {
    return bytes <= LastLevelCacheBytes() ? Place::kCache : Place::kMemory;
  }

  // Collects the times of one operation, so that samples of different operations can be
  // interleaved.
  class Series {
   public:
    // Adds one time, and the minimum that each limit would have allowed.
    void Add(double seconds, double min_reading, double min_arithmetic, Place place);
    LimitedTime Result() const;  // REQUIRES: Add was called
    bool empty() const { return ms_.empty(); }

   private:
    std::vector<double> ms_;
    std::vector<double> of_limit_;
    double min_reading_ = 0.0;  // sums
    double min_arithmetic_ = 0.0;
    Place place_ = Place::kMemory;
  };
  // Measures the limits of `demand`, which has just taken `seconds`, and adds both to `series`.
  void AddTime(const Demand& demand, double seconds, Series* series);

  // Medians of the measurements so far, of which at least three are made; nullopt if the machine
  // does not have this cache or instruction.
  std::optional<double> BytesPerSecond(Place place);
  std::optional<double> FlopsPerSecond(DotInput input);
  // {"read_bytes_per_second": {"dram", "cache"}, "flops": {"f32", "bf16", "int8"}, "buffer_bytes":
  // {"dram", "cache"}}, with null for limits that the machine does not have.
  JsonValue ToJson();
  std::string ToText();
  int num_threads() const { return pool_.num_threads(); }

 private:
  explicit MachineLimits(int num_threads) : pool_(num_threads) {}
  double Measure(Place place);     // bytes per second
  double Measure(DotInput input);  // operations per second
  // Returns the median of `samples`, the measurements of `limit`, after adding some if there are
  // fewer than three.
  template <typename Limit>
  double Median(Limit limit, const std::vector<double>& samples);

  ThreadPool pool_;
  std::unique_ptr<ReadBuffer> memory_;
  std::unique_ptr<ReadBuffer> cache_;  // null if the cache's size is unknown
  std::vector<double> read_samples_[2];
  std::vector<double> flops_samples_[3];
};

// Returns the input type with which this machine computes products with weights of type `weight`.
DotInput DotInputOf(DType weight, bool bf16_products);
// Whether a CPU backend made with `compute` multiplies bf16 weights with bf16 activations.
bool UsesBf16Products(CpuCompute compute);

// Returns the name of the processor for reports; "unknown" if it cannot be read.
std::string CpuName();

struct PassShape {
  int rows = 1;        // tokens read per sequence
  int context = 0;     // tokens before them, in the cache
  int logit_rows = 1;  // rows per sequence whose logits are computed
  int batch = 1;       // sequences
};

class PassCounter {
 public:
  // `bytes_read`: bytes of matrices that one pass reads; `dtype`: their type; `kv_bytes`: bytes of
  // a token in the cache.
  PassCounter(const ModelConfig& config, int64_t bytes_read, int64_t kv_bytes, DType dtype,
              bool bf16_products);

  // Returns the demand of one pass: it reads every matrix once and each sequence's cache once, and
  // needs two operations for each multiply-add of the products and of attention. Attention computes
  // little compared with the products, and is counted with their input type.
  Demand Of(const PassShape& pass) const;
  // Returns the demand of a prompt that is read in chunks.
  Demand OfPrompt(int num_tokens, int chunk_tokens) const;

 private:
  double bytes_read_;
  double kv_bytes_;
  double body_elements_ = 0.0;  // of all matrices except the head
  double head_elements_ = 0.0;
  double attended_elements_ = 0.0;  // multiply-adds per token that a row attends to
  Place place_;
  DotInput input_;
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_BENCH_MACHINE_LIMITS_H_
