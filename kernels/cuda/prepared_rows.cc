#include "kernels/cuda/prepared_rows.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/cuda/product_layout.h"

namespace tandem::cuda {
namespace {

bool Overlap(const void* begin, size_t bytes, const void* other, size_t other_bytes) {
  const auto* const first = static_cast<const std::byte*>(begin);
  const auto* const second = static_cast<const std::byte*>(other);
  return std::less<>()(first, second + other_bytes) && std::less<>()(second, first + bytes);
}

bool Overlap(const void* begin, size_t bytes, const ConstMatrixView& x) {
  if (x.data == nullptr || x.rows == 0) return false;
  const size_t numbers = static_cast<size_t>(x.stride) * (x.rows - 1) + x.cols;
  return Overlap(begin, bytes, x.data, numbers * sizeof(float));
}

}  // namespace

PreparedRows::Rows PreparedRows::Find(const ConstMatrixView& x, const float* norm) {
  for (int i = 0; i < kPlaces; ++i) {
    Place& place = places_[i];
    const ConstMatrixView& held = place.x;
    if (held.data != x.data || held.rows != x.rows || held.cols != x.cols ||
        held.stride != x.stride || place.norm != norm) {
      continue;
    }
    place.was_read = true;
    read_ = i;
    return {place.rows.data(), static_cast<float*>(place.squares.data())};
  }
  return {};
}

PreparedRows::Rows PreparedRows::Scratch(size_t bytes, size_t num_squares) {
  const int place = FreePlace();
  TANDEM_CHECK(place != kNone);  // Make keeps one free
  read_ = place;
  return ReserveIn(&places_[place], bytes, num_squares);
}

NextRows PreparedRows::Make(const MatrixView& out, const NextProduct& next, bool is_only) {
  if (next.weight == nullptr || next.weight->dtype != DType::kBF16 || out.rows == 0 ||
      out.cols % kStepInputs != 0) {
    return {};
  }
  TANDEM_CHECK(next.weight->inputs == out.cols);
  const bool has_needed =
      std::any_of(places_, places_ + kPlaces, [](const Place& place) { return place.is_needed(); });
  const int free = FreePlace();
  if (free == kNone || (is_only && has_needed)) return {};
  Place& place = places_[free];
  const size_t num_squares =
      next.norm == nullptr ? 0 : static_cast<size_t>(out.rows) * NumSquares(out.cols);
  const Rows rows = ReserveIn(&place, RowsImageBytes(out.rows, out.cols), num_squares);
  if (rows.data == nullptr) return {};
  place.x = out;
  place.norm = next.norm;
  place.is_only = is_only;
  place.was_read = false;
  return {.image = rows.data, .norm = next.norm, .squares = rows.squares};
}

void PreparedRows::Overwrite(const void* begin, size_t bytes) {
  for (Place& place : places_) {
    const bool has_norm = place.x.data != nullptr && place.norm != nullptr;
    if (Overlap(begin, bytes, place.x) ||
        (has_norm && Overlap(begin, bytes, place.norm, sizeof(float) * place.x.cols))) {
      place.x = {};
    }
  }
}

bool PreparedRows::IsUnwritten(const void* begin, size_t bytes) const {
  return std::any_of(places_, places_ + kPlaces, [&](const Place& place) {
    return place.is_only && Overlap(begin, bytes, place.x);
  });
}

void PreparedRows::Forget() {
  for (Place& place : places_) place.x = {};
  read_ = kNone;
}

void PreparedRows::FreeMemory() {
  Forget();
  for (Place& place : places_) {
    place.rows = Buffer();
    place.squares = Buffer();
  }
}

int PreparedRows::FreePlace() const {
  for (int i = 0; i < kPlaces; ++i) {
    if (i != read_ && !places_[i].is_needed()) return i;
  }
  return kNone;
}

PreparedRows::Rows PreparedRows::ReserveIn(Place* place, size_t bytes, size_t num_squares) {
  place->x = {};
  Rows rows{.data = reserve_(&place->rows, bytes)};
  if (rows.data == nullptr || num_squares == 0) return rows;
  rows.squares = static_cast<float*>(reserve_(&place->squares, sizeof(float) * num_squares));
  return rows.squares == nullptr ? Rows{} : rows;
}

}  // namespace tandem::cuda
