// Vectors as NumPy's arrays, and back.
#ifndef TANDEM_PYTHON_ARRAYS_H_
#define TANDEM_PYTHON_ARRAYS_H_

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

namespace tandem::python {

template <typename T>
using Array = nanobind::ndarray<nanobind::numpy, T, nanobind::ndim<1>>;
// Token ids as they come in: one dimension, 32 bits, contiguous.
using IdArray = nanobind::ndarray<const std::int32_t, nanobind::ndim<1>, nanobind::c_contig,
                                  nanobind::device::cpu>;

// A copy, which the array owns.
template <typename T, typename Range>
Array<T> ArrayOf(const Range& values) {
  auto owned = std::make_unique<T[]>(values.size());
  std::copy(values.begin(), values.end(), owned.get());
  T* const data = owned.get();
  const nanobind::capsule owner(owned.release(),
                                [](void* p) noexcept { delete[] static_cast<T*>(p); });
  return Array<T>(data, {values.size()}, owner);
}

inline std::vector<std::int32_t> VectorOf(const IdArray& ids) {
  return std::vector<std::int32_t>(ids.data(), ids.data() + ids.shape(0));
}

}  // namespace tandem::python

#endif  // TANDEM_PYTHON_ARRAYS_H_
