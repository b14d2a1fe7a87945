// The operations on experts: feed-forward networks of which each row goes through some.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "kernels/cpu/cpu_backend.h"

namespace tandem {
namespace {

// Finds the indices of the `count` largest entries (among equals, the first), in increasing order.
// If x contains a NaN, the indices are valid and distinct, but arbitrary.
void IndicesOfLargest(const float* x, int size, int count, int32_t* found) {
  for (int i = 0; i < count; ++i) {
    int best = -1;
    for (int candidate = 0; candidate < size; ++candidate) {
      const bool is_taken = std::find(found, found + i, candidate) != found + i;
      if (!is_taken && (best < 0 || x[candidate] > x[best])) best = candidate;
    }
    found[i] = best;
  }
  std::sort(found, found + count);
}

}  // namespace

void CpuBackend::ChooseExperts(MatrixView logits, bool renormalises, const ExpertChoices& choices) {
  const int count = choices.per_row;
  TANDEM_CHECK(logits.dtype == DType::kF32 && 1 <= count && count <= logits.cols);
  const auto choose = [&](float* row, int32_t* experts, float* weights) {
    IndicesOfLargest(row, logits.cols, count, experts);
    const float largest = kernels_.largest_or_nan(row, logits.cols);
    if (!std::isfinite(largest)) {
      std::fill_n(weights, count, std::numeric_limits<float>::quiet_NaN());
      return;
    }
    if (renormalises) {
      for (int i = 0; i < count; ++i) weights[i] = row[experts[i]];
      kernels_.softmax(weights, count, 1.0f, largest);
    } else {
      kernels_.softmax(row, logits.cols, 1.0f, largest);
      for (int i = 0; i < count; ++i) weights[i] = row[experts[i]];
    }
  };
  ForShares(logits.rows, int64_t{logits.rows} * logits.cols * count, [&](int begin, int end) {
    for (int64_t r = begin; r < end; ++r) {
      choose(RowOf(logits, r), choices.experts + r * count, choices.weights + r * count);
    }
  });
}

template <typename Use>
void CpuBackend::ForExpertOutputs(ConstMatrixView x, const ExpertChoices& choices,
                                  const ExpertWeights& experts, Activation activation,
                                  const Use& use) {
  const int num_experts = static_cast<int>(experts.gate_up.size());
  if (num_experts == 0) return;
  const int size = experts.down[0].inputs;
  TANDEM_CHECK(x.dtype == DType::kF32 && experts.down.size() == experts.gate_up.size());
  rows_of_expert_.resize(std::max<size_t>(rows_of_expert_.size(), num_experts));
  for (int e = 0; e < num_experts; ++e) rows_of_expert_[e].clear();
  for (int i = 0; i < x.rows * choices.per_row; ++i) {
    const int e = choices.experts[i] - experts.first;
    if (0 <= e && e < num_experts) rows_of_expert_[e].push_back(i);
  }
  const size_t floats = size_t{2} * x.rows * x.cols + static_cast<size_t>(x.rows) * size;
  auto* const input = static_cast<float*>(expert_rows_.Reserve(floats * sizeof(float)));
  float* const output = input + static_cast<size_t>(x.rows) * x.cols;
  float* const gated = output + static_cast<size_t>(x.rows) * x.cols;
  for (int e = 0; e < num_experts; ++e) {
    const std::vector<int>& chosen = rows_of_expert_[e];
    if (chosen.empty()) continue;
    const int rows = static_cast<int>(chosen.size());
    const int64_t work = int64_t{rows} * x.cols;
    ForShares(rows, work, [&](int begin, int end) {
      for (int i = begin; i < end; ++i) {
        std::memcpy(input + int64_t{i} * x.cols, RowOf(x, chosen[i] / choices.per_row),
                    x.cols * sizeof(float));
      }
    });
    const MatrixView inputs{input, DType::kF32, rows, x.cols, x.cols};
    const MatrixView middle{gated, DType::kF32, rows, size, size};
    const MatrixView outputs{output, DType::kF32, rows, x.cols, x.cols};
    MatMulGated(inputs, experts.gate_up[e], activation, middle);
    MatMul(middle, experts.down[e], outputs);
    ForShares(rows, work, [&](int begin, int end) {
      for (int i = begin; i < end; ++i) use(chosen[i], RowOf(outputs, i));
    });
  }
}

void CpuBackend::MixExperts(ConstMatrixView x, const ExpertChoices& choices,
                            const ExpertWeights& experts, Activation activation, MatrixView out) {
  TANDEM_CHECK(x.rows == out.rows && x.cols == out.cols);
  for (int r = 0; r < out.rows; ++r) std::fill_n(RowOf(out, r), out.cols, 0.0f);
  ForExpertOutputs(x, choices, experts, activation, [&](int choice, const float* output) {
    kernels_.add_scaled(output, choices.weights[choice], x.cols,
                        RowOf(out, choice / choices.per_row));
  });
}

void CpuBackend::RunExperts(ConstMatrixView x, const ExpertChoices& choices,
                            const ExpertWeights& experts, Activation activation,
                            MatrixView outputs) {
  TANDEM_CHECK(outputs.rows == x.rows * choices.per_row && x.cols == outputs.cols);
  ForExpertOutputs(x, choices, experts, activation, [&](int choice, const float* output) {
    std::memcpy(RowOf(outputs, choice), output, x.cols * sizeof(float));
  });
}

void CpuBackend::SumExperts(ConstMatrixView outputs, const ExpertChoices& choices, MatrixView out) {
  TANDEM_CHECK(outputs.rows == out.rows * choices.per_row && outputs.cols == out.cols);
  ForShares(out.rows, int64_t{outputs.rows} * out.cols, [&](int begin, int end) {
    for (int64_t r = begin; r < end; ++r) {
      std::fill_n(RowOf(out, r), out.cols, 0.0f);
      for (int64_t i = r * choices.per_row; i < (r + 1) * choices.per_row; ++i) {
        kernels_.add_scaled(RowOf(outputs, i), choices.weights[i], out.cols, RowOf(out, r));
      }
    }
  });
}

}  // namespace tandem
