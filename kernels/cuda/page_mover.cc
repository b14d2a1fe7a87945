#include "kernels/cuda/page_mover.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/status_macros.h"
#include "kernels/cuda/kv_pages.h"

namespace tandem::cuda {
namespace {

size_t PageBytes(const KvPages& cache) { return cache.page_words() * sizeof(uint32_t); }

}  // namespace

PageMover::~PageMover() {
  FreeHalves();
  if (own_ != nullptr) (void)CloseDevice(own_);
  if (enqueued_ != nullptr) (void)EndEvent(enqueued_, main_);
}

void PageMover::FreeHalves() {
  for (Half& half : halves_) {
    Await(&half).IgnoreError();
    if (half.data != nullptr) (void)FreePinned(main_, half.data);
    if (half.moved != nullptr) (void)EndEvent(half.moved, main_);
    half = {};
  }
  half_bytes_ = 0;
}

absl::Status PageMover::Open(size_t page_bytes) {
  RETURN_IF_ERROR(errors_.lost());
  if (page_bytes <= half_bytes_) return absl::OkStatus();
  if (own_ == nullptr) RETURN_IF_ERROR(StatusOf(OpenSecondStream(main_, &own_)));
  if (enqueued_ == nullptr) RETURN_IF_ERROR(StatusOf(MakeEvent(main_, &enqueued_)));
  FreeHalves();
  const size_t bytes = std::max(page_bytes, kHalfBytes);
  for (Half& half : halves_) {
    void* data = nullptr;
    const Error error = AllocatePinned(main_, bytes, &data);
    half.data = static_cast<std::byte*>(data);
    if (IsOutOfMemory(error)) {
      return absl::ResourceExhaustedError("no pinned memory for moving pages");
    }
    RETURN_IF_ERROR(StatusOf(error));
    RETURN_IF_ERROR(StatusOf(MakeEvent(main_, &half.moved)));
  }
  half_bytes_ = bytes;
  return absl::OkStatus();
}

// Lets the pages wait for the work that is enqueued on the main stream.
absl::Status PageMover::FollowMain() {
  RETURN_IF_ERROR(errors_.lost());
  RETURN_IF_ERROR(StatusOf(Mark(enqueued_, main_)));
  return StatusOf(Follow(enqueued_, own_));
}

absl::Status PageMover::Move(const KvPages& cache, absl::Span<const int32_t> pages, bool writes,
                             Half* half) {
  CopyPagesTask task{
      .cache = cache,
      .kind = writes ? CopyPagesTask::Kind::kFromBuffer : CopyPagesTask::Kind::kToBuffer,
      .buffer = reinterpret_cast<uint32_t*>(half->data),
      .num_pages = static_cast<int>(pages.size())};
  std::copy(pages.begin(), pages.end(), task.pages);
  RETURN_IF_ERROR(StatusOf(Launch(task, own_)));
  half->is_moving = true;
  return StatusOf(Mark(half->moved, own_));
}

absl::Status PageMover::Await(Half* half) {
  if (!half->is_moving) return absl::OkStatus();
  half->is_moving = false;
  return StatusOf(Wait(half->moved, own_));
}

absl::Status PageMover::Read(const KvPages& cache, absl::Span<const int32_t> pages,
                             absl::FunctionRef<bool(int index, Backend::CopyPage copy)> take) {
  if (pages.empty()) return absl::OkStatus();
  const size_t page_bytes = PageBytes(cache);
  TANDEM_CHECK(page_bytes <= half_bytes_);
  const size_t per_half = std::min<size_t>(half_bytes_ / page_bytes, kPagesPerLaunch);
  const auto move = [&](size_t first, Half* half) {
    const size_t count = std::min(per_half, pages.size() - first);
    return Move(cache, pages.subspan(first, count), /*writes=*/false, half);
  };
  RETURN_IF_ERROR(FollowMain());
  RETURN_IF_ERROR(move(0, &halves_[0]));
  for (size_t first = 0, turn = 0; first < pages.size(); first += per_half, ++turn) {
    const Half& half = halves_[turn % 2];
    const size_t next = first + per_half;
    if (next < pages.size()) RETURN_IF_ERROR(move(next, &halves_[(turn + 1) % 2]));
    RETURN_IF_ERROR(Await(&halves_[turn % 2]));
    for (size_t i = first; i < std::min(next, pages.size()); ++i) {
      const auto copy = [&](absl::Span<std::byte> into) {
        TANDEM_CHECK(into.size() == page_bytes);
        std::memcpy(into.data(), half.data + (i - first) * page_bytes, page_bytes);
      };
      if (!take(static_cast<int>(i), copy)) return absl::OkStatus();
    }
  }
  return absl::OkStatus();
}

absl::Status PageMover::Write(absl::Span<const absl::Span<const std::byte>> from,
                              absl::Span<const int32_t> pages, const KvPages& cache) {
  if (pages.empty()) return absl::OkStatus();
  const size_t page_bytes = PageBytes(cache);
  TANDEM_CHECK(page_bytes <= half_bytes_ && from.size() == pages.size());
  const size_t per_half = std::min<size_t>(half_bytes_ / page_bytes, kPagesPerLaunch);
  RETURN_IF_ERROR(FollowMain());
  Half* half = nullptr;
  for (size_t first = 0, turn = 0; first < pages.size(); first += per_half, ++turn) {
    half = &halves_[turn % 2];
    RETURN_IF_ERROR(Await(half));
    const size_t count = std::min(per_half, pages.size() - first);
    for (size_t i = 0; i < count; ++i) {
      TANDEM_CHECK(from[first + i].size() == page_bytes);
      std::memcpy(half->data + i * page_bytes, from[first + i].data(), page_bytes);
    }
    RETURN_IF_ERROR(Move(cache, pages.subspan(first, count), /*writes=*/true, half));
  }
  return StatusOf(Follow(half->moved, main_));
}

}  // namespace tandem::cuda
