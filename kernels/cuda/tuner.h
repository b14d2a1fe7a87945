#ifndef TANDEM_KERNELS_CUDA_TUNER_H_
#define TANDEM_KERNELS_CUDA_TUNER_H_

#include <array>
#include <compare>
#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/variants.h"

namespace tandem::cuda {

// Chooses variants (variants.h): of products of few rows by shape of weights and class of rows, and
// of distributions by the size of the vocabulary.
//
// The first weight of a shape is multiplied by every variant, with random rows. The first row of a
// size that is cut waits for random ones. A variant whose bits differ from those of variant 0 is
// refused and logged, because it would change outputs; the fastest of the others is kept. Before
// each timed product the device reads as much other memory as its L2 cache holds, so that weights
// come from memory, as in a pass. Thread-compatible.
class Tuner {
 public:
  // The variant for each class of rows.
  using Choice = std::array<int, kNumRowTileChoices>;
  struct WeightShape {
    DType dtype = DType::kBF16;
    int num_tiles = 0;
    int num_steps = 0;
    auto operator<=>(const WeightShape&) const = default;
  };
  // Replaced by tests.
  struct Hooks {
    std::function<double()> seconds;  // the time
    std::function<Error(const TileProductTask&, Stream)> launch;
    std::function<Error(const DistributionsTask&, Stream)> launch_rows;
    // Smaller weights and rows have variant 0: their passes wait for launches, not for memory.
    size_t min_weight_bytes = size_t{1} << 20;
    int min_row = 16 << 10;
  };

  // `backend` must outlive this.
  Tuner(Backend* backend, const DeviceProperties& properties, Stream stream);

  // "off": variant 0, which is also the choice without a call. "load": measures. Otherwise a file:
  // its choices if it was written for this device, driver and table of variants, else measures and
  // writes it. INVALID_ARGUMENT, naming the field, if the file is broken.
  absl::Status Open(const std::string& how);
  // Measures if the weight is the first of its shape. May block. Failures are logged.
  //   packed: `bytes` bytes (product_layout.h)
  void Add(const WeightShape& shape, PartOrder order, const void* packed, size_t bytes);
  // Returns the variant for rows of `size` entries that are cut. May block the first time.
  int VariantOfRows(int size);
  // Launches a product with the chosen variant. Neither blocks nor allocates.
  Error Launch(TileProductTask task) const;

  // Returns the choices, for people.
  std::vector<std::string> Report() const;

  const Hooks& hooks() const { return hooks_; }
  void Replace(Hooks hooks) { hooks_ = std::move(hooks); }

 private:
  class Memory;        // of the device
  class ProductTrial;  // products with one weight
  class RowTrial;      // distributions of one row
  using IsEqual = absl::FunctionRef<absl::StatusOr<bool>(int variant)>;
  using Enqueue = absl::FunctionRef<absl::Status(int variant)>;

  absl::Status Read(const std::string& file);
  void Write();
  // Returns the fastest of `count` variants, among variant 0 and those that are equal to it.
  absl::StatusOr<int> Fastest(int count, const std::string& what, IsEqual is_equal,
                              Enqueue enqueue) const;
  absl::StatusOr<Choice> Measure(const WeightShape& shape, PartOrder order, const void* packed,
                                 size_t bytes) const;
  absl::StatusOr<int> MeasureRows(int size) const;
  // Logs a choice, or why there is none, and writes the file.
  void Tell(const std::string& line, const absl::Status& status);
  std::string device_name() const;

  Backend& backend_;
  const Stream stream_;
  const int num_sms_;
  const size_t flush_bytes_;
  const std::string key_;  // of files: the device, the driver and the table
  Hooks hooks_;
  bool measures_ = false;
  std::string file_ = "";
  std::map<WeightShape, Choice> choices_;
  std::map<int, int> row_choices_;  // by size
};

}  // namespace tandem::cuda

#endif  // TANDEM_KERNELS_CUDA_TUNER_H_
