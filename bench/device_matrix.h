// Matrices of f32 in a backend's memory.
#ifndef TANDEM_BENCH_DEVICE_MATRIX_H_
#define TANDEM_BENCH_DEVICE_MATRIX_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "kernels/backend.h"
#include "tools/checkpoints/random_model.h"

namespace tandem {

inline constexpr uint64_t kBenchSeed = 5;

// Numbers between -1 and 1.
inline std::vector<float> RandomFloats(int64_t count) {
  std::vector<float> values(count);
  FillRandom(kBenchSeed, 0, 0, 0.0f, 1.0f, DType::kF32,
             {reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(float)});
  return values;
}

template <typename T>
absl::StatusOr<Buffer> Uploaded(const std::vector<T>& values, Backend* backend) {
  const size_t bytes = values.size() * sizeof(T);
  ASSIGN_OR_RETURN(Buffer buffer, backend->Allocate(bytes));
  backend->Upload({reinterpret_cast<const std::byte*>(values.data()), bytes}, buffer.data());
  return buffer;
}

// A matrix in the backend's memory.
struct DeviceMatrix {
  Buffer buffer;
  int cols = 0;

  static absl::StatusOr<DeviceMatrix> Random(Backend* backend, int rows, int cols) {
    DeviceMatrix matrix{.buffer = {}, .cols = cols};
    ASSIGN_OR_RETURN(matrix.buffer, Uploaded(RandomFloats(int64_t{rows} * cols), backend));
    return matrix;
  }
  // Rows that are all the same.
  static absl::StatusOr<DeviceMatrix> Repeat(Backend* backend, int rows, int cols) {
    DeviceMatrix matrix{.buffer = {}, .cols = cols};
    ASSIGN_OR_RETURN(matrix.buffer, backend->Allocate(sizeof(float) * rows * int64_t{cols}));
    const std::vector<float> row = RandomFloats(cols);
    const size_t bytes = row.size() * sizeof(float);
    backend->Upload({reinterpret_cast<const std::byte*>(row.data()), bytes}, matrix.row(0));
    for (int i = 1; i < rows; ++i) backend->Copy(matrix.row(0), matrix.row(i), bytes);
    return matrix;
  }
  float* row(int index) const { return static_cast<float*>(buffer.data()) + int64_t{index} * cols; }
  MatrixView first(int rows) const { return {buffer.data(), DType::kF32, rows, cols, cols}; }
};

}  // namespace tandem

#endif  // TANDEM_BENCH_DEVICE_MATRIX_H_
