// Shared by the tests of kernels: matrices that own their elements, the backends to test, and plain
// reference versions of operations.
#ifndef TANDEM_KERNELS_KERNEL_TESTING_H_
#define TANDEM_KERNELS_KERNEL_TESTING_H_

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "base/check.h"
#include "base/float16.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/blocks.h"
#include "kernels/quantize.h"

namespace tandem {

// Normally distributed numbers. They are drawn once, because drawing them for each test took most
// of the tests' time.
inline const std::vector<float>& SomeNormals() {
  static const std::vector<float> normals = [] {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> drawn(1 << 16);
    for (float& number : drawn) number = normal(random);
    return drawn;
  }();
  return normals;
}

// A row-major f32 matrix with gaps between its rows, which are filled with NaN.
class TestMatrix {
 public:
  TestMatrix(int rows, int cols, int gap = 3)
      : rows_(rows), cols_(cols), stride_(cols + gap), data_(size_t(rows) * stride_ + 1, NAN) {
    for (int r = 0; r < rows; ++r) std::fill_n(row(r), cols, 0.0f);
  }
  static TestMatrix Random(int rows, int cols, std::mt19937& random, float spread = 1.0f) {
    const std::vector<float>& normals = SomeNormals();
    TestMatrix m(rows, cols);
    for (int r = 0; r < rows; ++r) {
      size_t next = random() % normals.size();
      for (int c = 0; c < cols; ++c) {
        m.at(r, c) = spread * normals[next];
        if (++next == normals.size()) next = 0;
      }
    }
    return m;
  }

  int rows() const { return rows_; }
  int cols() const { return cols_; }
  float* row(int r) { return data_.data() + size_t(r) * stride_; }
  const float* row(int r) const { return data_.data() + size_t(r) * stride_; }
  float& at(int r, int c) { return row(r)[c]; }
  float at(int r, int c) const { return row(r)[c]; }
  MatrixView view() { return {data_.data(), DType::kF32, rows_, cols_, stride_}; }
  ConstMatrixView view() const { return {data_.data(), DType::kF32, rows_, cols_, stride_}; }

  // A matrix of the rows `indices`, in that order.
  TestMatrix Rows(const std::vector<int>& indices) const {
    TestMatrix m(static_cast<int>(indices.size()), cols_);
    for (size_t i = 0; i < indices.size(); ++i) std::copy_n(row(indices[i]), cols_, m.row(int(i)));
    return m;
  }
  bool SameBits(int r, const TestMatrix& other, int other_row) const {
    return std::memcmp(row(r), other.row(other_row), cols_ * sizeof(float)) == 0;
  }
  bool SameBits(const TestMatrix& other) const {
    for (int r = 0; r < rows_; ++r) {
      if (!SameBits(r, other, r)) return false;
    }
    return true;
  }

 private:
  int rows_;
  int cols_;
  int64_t stride_;
  std::vector<float> data_;
};

inline std::vector<int> Iota(int count) {
  std::vector<int> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

// The dot product of x and w plus a bias, in double, and the sum of the magnitudes of its terms, to
// which the bounds of rounding errors are proportional.
struct ExactDot {
  double value = 0.0;
  double magnitude = 0.0;
};
inline ExactDot DotInDouble(const float* x, const float* w, int inputs, bool rounds_to_bf16,
                            float bias) {
  ExactDot dot{.value = bias, .magnitude = std::abs(bias)};
  for (int k = 0; k < inputs; ++k) {
    const float activation = rounds_to_bf16 ? Bf16ToFloat(FloatToBf16(x[k])) : x[k];
    dot.value += double{activation} * w[k];
    dot.magnitude += std::abs(double{activation} * w[k]);
  }
  return dot;
}

inline std::vector<float> RandomBias(int size, std::mt19937& random) {
  const TestMatrix values = TestMatrix::Random(1, size, random);
  return std::vector<float>(values.row(0), values.row(0) + size);
}

// A matrix of weights of some dtype in host memory, with gaps between rows unless it has blocks.
class TestWeight {
 public:
  TestWeight(const TestMatrix& values, DType dtype)
      : rounded_(values), dtype_(dtype), stride_(values.cols() + (IsBlocks(dtype) ? 0 : 5)) {
    if (IsBlocks(dtype)) {
      Quantize();
      return;
    }
    storage_.resize(size_t(values.rows()) * stride_ * SizeOf(dtype), std::byte{0xFF});
    for (int r = 0; r < values.rows(); ++r) {
      for (int c = 0; c < values.cols(); ++c) Put(r, c, values.at(r, c));
    }
  }
  // The weights after rounding to the dtype.
  const TestMatrix& values() const { return rounded_; }
  ConstMatrixView view() const {
    return {storage_.data(), dtype_, rounded_.rows(), rounded_.cols(), stride_};
  }

 private:
  void Quantize() {
    const size_t row_bytes = RowBytes(dtype_, stride_);
    storage_.resize(rounded_.rows() * row_bytes);
    for (int r = 0; r < rounded_.rows(); ++r) {
      QuantizeRow(rounded_.row(r), rounded_.cols(), dtype_, storage_.data() + r * row_bytes);
      WidenRow(storage_.data() + r * row_bytes, dtype_, rounded_.cols(), &rounded_.at(r, 0));
    }
  }
  void Put(int r, int c, float value) {
    std::byte* to = storage_.data() + (size_t(r) * stride_ + c) * SizeOf(dtype_);
    if (dtype_ == DType::kF32) {
      std::memcpy(to, &value, sizeof(value));
      return;
    }
    const uint16_t bits = dtype_ == DType::kF16 ? FloatToF16(value) : FloatToBf16(value);
    rounded_.at(r, c) = dtype_ == DType::kF16 ? F16ToFloat(bits) : Bf16ToFloat(bits);
    std::memcpy(to, &bits, sizeof(bits));
  }

  TestMatrix rounded_;
  DType dtype_;
  int64_t stride_;
  std::vector<std::byte> storage_;
};

// A plain reader and writer of the format of PagedKvView.
class TestKvRow {
 public:
  // The key or the value of one token and head.
  TestKvRow(const PagedKvView& kv, bool is_key, int64_t page, int kv_head, int place)
      : kv_(kv),
        words_(static_cast<uint32_t*>(is_key ? kv.keys : kv.values) + kv.BlockOf(page, kv_head)),
        num_words_(KvElementWords(kv.dtype, kv.head_dim)),
        first_(is_key ? place : int64_t{place} * num_words_),
        stride_(is_key ? kv.page_size : 1),
        scale_(int64_t{kv.page_size} * num_words_ + place) {}

  uint32_t* word(int w) const { return words_ + first_ + w * stride_; }
  float scale() const { return kv_.dtype == KvDType::kInt8 ? Number(words_[scale_]) : 1.0f; }
  // Element d, before it is multiplied by the scale.
  float stored(int d) const {
    switch (kv_.dtype) {
      case KvDType::kF32:
        return Number(*word(d));
      case KvDType::kBF16:
        return Bf16ToFloat(static_cast<uint16_t>(*word(d / 2) >> 16 * (d % 2)));
      case KvDType::kInt8:
        break;
    }
    return static_cast<int8_t>(*word(d / 4) >> 8 * (d % 4));
  }
  double value(int d) const { return double{stored(d)} * scale(); }

  // Stores a row. In an int8 cache a row that is not finite becomes zeros with a scale of NaN.
  void Put(const float* row) const {
    const bool is_finite =
        std::all_of(row, row + kv_.head_dim, [](float x) { return std::isfinite(x); });
    double largest = is_finite ? 0.0 : NAN;
    for (int d = 0; d < kv_.head_dim && is_finite; ++d) {
      largest = std::max(largest, std::abs(double{row[d]}));
    }
    if (kv_.dtype == KvDType::kInt8) words_[scale_] = Bits(static_cast<float>(largest / 127.0));
    for (int w = 0; w < num_words_; ++w) *word(w) = 0;
    if (kv_.dtype == KvDType::kInt8 && !is_finite) return;
    for (int d = 0; d < kv_.head_dim; ++d) {
      switch (kv_.dtype) {
        case KvDType::kF32:
          *word(d) = Bits(row[d]);
          break;
        case KvDType::kBF16:
          *word(d / 2) |= uint32_t{FloatToBf16(row[d])} << 16 * (d % 2);
          break;
        case KvDType::kInt8:
          const auto whole = static_cast<int8_t>(std::lround(row[d] * 127.0 / largest));
          *word(d / 4) |= uint32_t{static_cast<uint8_t>(whole)} << 8 * (d % 4);
          break;
      }
    }
  }

 private:
  static float Number(uint32_t bits) { return std::bit_cast<float>(bits); }
  static uint32_t Bits(float x) { return std::bit_cast<uint32_t>(x); }

  PagedKvView kv_;
  uint32_t* words_;
  int num_words_;
  int64_t first_, stride_, scale_;
};

// A backend to test. Records whether it rounds activations to bf16 if the weights are bf16, and
// whether it rounds them to integers of 16 bits in attention over an int8 cache.
struct TestBackend {
  std::string label;
  std::unique_ptr<Backend> backend;
  bool rounds_to_bf16 = false;
  bool rounds_to_int16 = false;
};

inline TestBackend MakeTestBackend(const std::string& isa, CpuCompute compute, int threads) {
  auto backend = MakeCpuBackend({.num_threads = threads, .compute = compute, .isa = isa});
  TANDEM_CHECK(backend.ok());
  const bool bf16 = HasBf16Products(isa) && compute != CpuCompute::kF32;
  const bool whole =
      (isa.starts_with("avx512_") || isa.starts_with("avx2")) && compute != CpuCompute::kF32;
  return {isa +
              (bf16    ? "/bf16/"
               : whole ? "/whole/"
                       : "/f32/") +
              std::to_string(threads),
          *std::move(backend), bf16, whole};
}

// One backend for each instruction set and rounding that this machine supports.
inline std::vector<TestBackend> AllBackends(int threads = 2) {
  std::vector<TestBackend> backends;
  for (const std::string& isa : CpuIsas()) {
    backends.push_back(MakeTestBackend(isa, CpuCompute::kF32, threads));
    if (HasBf16Products(isa)) {
      backends.push_back(MakeTestBackend(isa, CpuCompute::kBF16, threads));
    }
  }
  return backends;
}

inline constexpr DType kAllDTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
inline constexpr DType kAllBlockDTypes[] = {
    DType::kQ8_0, DType::kQ4_0, DType::kQ4_1, DType::kQ5_0, DType::kQ5_1,  DType::kQ2K,
    DType::kQ3K,  DType::kQ4K,  DType::kQ5K,  DType::kQ6K,  DType::kIq4Nl, DType::kIq4Xs};

// Returns values in the backend's memory: a copy, or `values` themselves if that is the host's.
template <typename T>
Buffer UploadTo(Backend& backend, const std::vector<T>& values) {
  const size_t bytes = values.size() * sizeof(T);
  if (backend.memory_is_host()) return Buffer(nullptr, const_cast<T*>(values.data()), bytes);
  auto buffer = backend.Allocate(bytes);
  TANDEM_CHECK(buffer.ok());
  backend.Upload({reinterpret_cast<const std::byte*>(values.data()), bytes}, buffer->data());
  return *std::move(buffer);
}

template <typename T>
std::vector<T> DownloadFrom(Backend& backend, const Buffer& buffer) {
  std::vector<T> values(buffer.size_bytes() / sizeof(T));
  backend.Download(buffer.data(),
                   {reinterpret_cast<std::byte*>(values.data()), buffer.size_bytes()});
  return values;
}

// A TestMatrix, with the gaps between its rows, in the backend's memory.
class UploadedMatrix {
 public:
  UploadedMatrix(Backend& backend, TestMatrix matrix)
      : backend_(backend),
        host_(std::move(matrix)),
        elements_(host_.row(0),
                  host_.row(0) + std::max<int64_t>(
                                     1, (host_.rows() - 1) * host_.view().stride + host_.cols())),
        buffer_(UploadTo(backend, elements_)) {}
  MatrixView view() {
    MatrixView view = host_.view();
    view.data = buffer_.data();
    return view;
  }
  const float* data() const { return static_cast<const float*>(buffer_.data()); }
  // Downloads the matrix. Expects that the gaps between its rows were not written.
  TestMatrix Get() {
    TestMatrix got = host_;
    backend_.Download(buffer_.data(),
                      {reinterpret_cast<std::byte*>(got.row(0)), buffer_.size_bytes()});
    const int gap = static_cast<int>(got.view().stride) - got.cols();
    for (int r = 0; r + 1 < got.rows(); ++r) {
      for (int c = 0; c < gap; ++c) {
        EXPECT_TRUE(std::isnan(got.row(r)[got.cols() + c])) << "written after row " << r;
      }
    }
    return got;
  }

 private:
  Backend& backend_;
  TestMatrix host_;
  std::vector<float> elements_;
  Buffer buffer_;
};

// Expects that `compute` gives the rows of x the same bits in batches of `counts` rows, in any
// order, as alone.
inline void ExpectRowsAsAlone(const TestMatrix& x, const std::vector<int>& counts,
                              std::mt19937& random,
                              absl::FunctionRef<TestMatrix(const TestMatrix&)> compute) {
  std::vector<TestMatrix> alone;
  for (int r = 0; r < x.rows(); ++r) alone.push_back(compute(x.Rows({r})));
  for (const int count : counts) {
    std::vector<int> order = Iota(x.rows());
    std::shuffle(order.begin(), order.end(), random);
    order.resize(count);
    const TestMatrix out = compute(x.Rows(order));
    for (int r = 0; r < count; ++r) {
      ASSERT_TRUE(out.SameBits(r, alone[order[r]], 0))
          << "K " << x.cols() << " N " << out.cols() << " row " << r << " of " << count;
    }
  }
}

// Packs a weight of floats or of blocks.
template <typename Weight>
PackedWeight PackOne(Backend& backend, const Weight& weight, const float* bias = nullptr) {
  auto packed = backend.Pack({{weight.view(), bias}}, PartOrder::kConcatenated);
  TANDEM_CHECK(packed.ok());
  return *std::move(packed);
}

}  // namespace tandem

#endif  // TANDEM_KERNELS_KERNEL_TESTING_H_
