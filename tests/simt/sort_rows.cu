#include <cuda_runtime.h>

#include <cstddef>
#include <cub/device/device_segmented_radix_sort.cuh>

#include "tests/simt/sort_rows.h"

namespace tandem::simt {
namespace {

// Device memory. `error` keeps the first failure of all calls.
class DeviceArray {
 public:
  DeviceArray(size_t bytes, cudaError_t* error) : bytes_(bytes), error_(error) {
    if (*error_ == cudaSuccess) *error_ = cudaMalloc(&data_, bytes);
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  template <typename T>
  T* As() {
    return static_cast<T*>(data_);
  }
  void CopyFrom(const void* host) { Copy(data_, host, cudaMemcpyHostToDevice); }
  void CopyTo(void* host) { Copy(host, data_, cudaMemcpyDeviceToHost); }

 private:
  void Copy(void* to, const void* from, cudaMemcpyKind kind) {
    if (*error_ == cudaSuccess) *error_ = cudaMemcpy(to, from, bytes_, kind);
  }

  void* data_ = nullptr;
  size_t bytes_;
  cudaError_t* error_;
};

}  // namespace

bool SortRows(const float* values, int num_rows, int size, int* places) {
  if (num_rows > kMaxSortedRows) return false;
  int row_begins[kMaxSortedRows + 1];
  for (int r = 0; r <= num_rows; ++r) row_begins[r] = r * size;
  const int count = num_rows * size;
  cudaError_t error = cudaSuccess;
  DeviceArray keys(count * sizeof(float), &error), sorted(count * sizeof(float), &error);
  DeviceArray from(count * sizeof(int), &error), to(count * sizeof(int), &error);
  keys.CopyFrom(values);
  for (int i = 0; i < count; ++i) places[i] = i % size;
  from.CopyFrom(places);
  DeviceArray begins((num_rows + 1) * sizeof(int), &error);
  begins.CopyFrom(row_begins);
  size_t bytes = 0;
  const auto sort = [&](void* storage) {
    if (error != cudaSuccess) return;
    error = cub::DeviceSegmentedRadixSort::SortPairsDescending(
        storage, bytes, keys.As<float>(), sorted.As<float>(), from.As<int>(), to.As<int>(), count,
        num_rows, begins.As<int>(), begins.As<int>() + 1);
  };
  sort(nullptr);  // returns the required storage
  DeviceArray storage(bytes, &error);
  sort(storage.As<void>());
  to.CopyTo(places);
  return error == cudaSuccess;
}

}  // namespace tandem::simt
