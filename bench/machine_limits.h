// What bounds every operation on this machine: how fast its threads read, and how fast they
// multiply and add; and the least bytes and operations of a pass of a model, counted from its
// sizes.
#ifndef TANDEM_BENCH_MACHINE_LIMITS_H_
#define TANDEM_BENCH_MACHINE_LIMITS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/thread_pool.h"
#include "checkpoint/model_config.h"
#include "kernels/backend.h"
#include "kernels/matrix.h"
#include "kernels/peak.h"
#include "nlohmann/json_fwd.hpp"
#include "tools/bandwidth.h"

namespace tandem {

enum class Place { kMemory, kCache };

// What an operation cannot do without. A multiply-add counts as two floating-point operations.
struct Demand {
  double bytes = 0.0;  // read from `place`
  Place place = Place::kMemory;
  double flops = 0.0;  // of `input`
  DotInput input = DotInput::kF32;
};

// Times of one thing, each compared with the limits that bound it.
struct LimitedTime {
  double ms = 0.0;        // median
  double of_limit = 0.0;  // median of the least time that the limits allow, over the time
  std::string_view bound = "memory";  // what takes longest by the limits: or "cache", "arithmetic"
};

// The limits of this machine. Its speed changes from one moment to the next, so every timing is
// compared with limits measured right after it, and the limits themselves are medians.
// Thread-compatible.
class MachineLimits {
 public:
  // Reads `memory_bytes`. RESOURCE_EXHAUSTED if there is not that much.
  static absl::StatusOr<std::unique_ptr<MachineLimits>> Create(
      int num_threads, int64_t memory_bytes = MemoryBufferBytes());

  // Whether this machine has an instruction for such products.
  static bool Has(DotInput input) { return RunMultiplyAdds(input, 1) > 0; }
  // Where something that reads `bytes` over and over finds them.
  static Place PlaceOf(int64_t bytes) {
    return bytes <= LastLevelCacheBytes() ? Place::kCache : Place::kMemory;
  }

  // A place for times that come bit by bit, so that what is compared takes turns.
  class Series {
   public:
    // One time, and the least that each limit would have allowed.
    void Add(double seconds, double min_reading, double min_arithmetic, Place place);
    LimitedTime Result() const;  // REQUIRES: something was added

   private:
    std::vector<double> ms_;
    std::vector<double> of_limit_;
    double min_reading_ = 0.0;  // sums
    double min_arithmetic_ = 0.0;
    Place place_ = Place::kMemory;
  };
  // Measures the limits of `demand`, which took `seconds` just now.
  void AddTime(const Demand& demand, double seconds, Series* series);

  // Medians so far, after at least one measurement each; nothing where the machine has none.
  std::optional<double> BytesPerSecond(Place place);
  std::optional<double> FlopsPerSecond(DotInput input);
  // {"read_bytes_per_second": {"dram", "cache"}, "flops": {"f32", "bf16", "int8"}}, null for what
  // the machine has not.
  nlohmann::ordered_json ToJson();
  std::string ToText();
  int num_threads() const { return pool_.num_threads(); }

 private:
  explicit MachineLimits(int num_threads) : pool_(num_threads) {}
  double Measure(Place place);     // bytes per second
  double Measure(DotInput input);  // operations per second
  // The median of at least three measurements of `limit`, whose `samples` these are.
  template <typename Limit>
  double Median(Limit limit, const std::vector<double>& samples);

  ThreadPool pool_;
  std::unique_ptr<ReadBuffer> memory_;
  std::unique_ptr<ReadBuffer> cache_;  // null if the machine does not tell its size
  std::vector<double> read_samples_[2];
  std::vector<double> flops_samples_[3];
};

// What products with such weights are computed by, on this machine.
DotInput DotInputOf(DType weight, bool bf16_products);
// Whether a CPU backend made with `compute` multiplies bf16 weights with bf16 activations.
bool UsesBf16Products(CpuCompute compute);

// The machine as it is named in reports.
std::string CpuName();

struct PassShape {
  int rows = 1;        // tokens read, of each sequence
  int context = 0;     // tokens before them, in the cache
  int logit_rows = 1;  // rows whose logits are computed, of each sequence
  int batch = 1;       // sequences
};

class PassCounter {
 public:
  // `bytes_read`: of matrices by one pass; `dtype`: theirs; `kv_bytes`: of a token in the cache.
  PassCounter(const ModelConfig& config, int64_t bytes_read, int64_t kv_bytes, DType dtype,
              bool bf16_products);

  // One pass: every matrix once, each cache once, two operations for each multiply-add of the
  // products and of attention. Attention computes little compared with the products, and is counted
  // with their input.
  Demand Of(const PassShape& pass) const;
  // A prompt read in chunks.
  Demand OfPrompt(int num_tokens, int chunk_tokens) const;

 private:
  double bytes_read_;
  double kv_bytes_;
  double body_elements_ = 0.0;  // of matrices but the head
  double head_elements_ = 0.0;
  double attended_elements_ = 0.0;  // multiply-adds for each token that a row looks at
  Place place_;
  DotInput input_;
};

}  // namespace tandem

#endif  // TANDEM_BENCH_MACHINE_LIMITS_H_
