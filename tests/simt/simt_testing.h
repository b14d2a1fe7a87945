// Small kernels for the tests of the machine, and the first fault of their launches.
#ifndef TANDEM_TESTS_SIMT_SIMT_TESTING_H_
#define TANDEM_TESTS_SIMT_SIMT_TESTING_H_

#include <numeric>
#include <string>

#include "kernels/cuda/device.h"
#include "kernels/cuda/simt.h"

namespace tandem::cuda {

inline constexpr int kCount = 64;

struct Numbers {
  const int* in = nullptr;  // [kCount]
  int* out = nullptr;       // [kCount]
};

// Memory that the machine watches.
class Array {
 public:
  explicit Array(int count) : count_(count) {
    data_ = static_cast<int*>(simt::Machine::Get().Allocate(count * sizeof(int)));
    std::iota(data_, data_ + count, 0);
  }
  ~Array() { simt::Machine::Get().Free(data_); }
  int* data() { return data_; }
  int operator[](int i) const { return data_[i]; }

 private:
  int count_;
  int* data_;
};

template <typename Kernel>
std::string Fault(const Numbers& task, LaunchShape shape = {1, 1, 1, 1024}) {
  const Error error = Enqueue<Kernel>(task, shape, nullptr);
  return error == kNoError ? "" : ErrorText(error);
}
template <typename Kernel>
std::string FaultOfArrays(LaunchShape shape = {1, 1, 1, 1024}) {
  Array in(kCount), out(kCount);
  return Fault<Kernel>({in.data(), out.data()}, shape);
}

struct OfNumbers {
  using Task = Numbers;
  static constexpr int kThreads = kCount;
};

}  // namespace tandem::cuda

#endif  // TANDEM_TESTS_SIMT_SIMT_TESTING_H_
