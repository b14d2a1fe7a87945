#include "text/constraint/work_budget.h"

#include <malloc.h>
#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <exception>
#include <limits>
#include <new>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/machine_load.h"
#include "text/constraint/count_loops.h"

namespace tandem {
namespace {

// Reading the processor time is a system call: with a check every 256 loops, compiling took 1.3
// to 1.8 times as long.
constexpr int kLoopsPerLook = 4096;

thread_local WorkBudget* of_thread = nullptr;

[[noreturn]] void OutOfMemory() {
  std::rethrow_exception(std::make_exception_ptr(std::bad_alloc()));
}

// Returns the lowest stack address that may be used, above a reserve for the calls between two
// counted loops.
const char* LowestStackPlace() {
  constexpr size_t kReserve = size_t{256} << 10;
  pthread_attr_t attributes;
  const int error = pthread_getattr_np(pthread_self(), &attributes);
  if (error == ENOMEM) OutOfMemory();
  TANDEM_CHECK(error == 0);
  void* end = nullptr;
  size_t size = 0;
  pthread_attr_getstack(&attributes, &end, &size);
  pthread_attr_destroy(&attributes);
  return static_cast<const char*>(end) + std::min(kReserve, size / 2);
}

}  // namespace

WorkBudget::WorkBudget(const Limits& limits) : limits_(limits), begin_(ThreadProcessorTime()) {
  TANDEM_CHECK(of_thread == nullptr);
  tandem_stack_limit = limits.watches_stack ? LowestStackPlace() : nullptr;
  of_thread = this;
  tandem_loops_left = 0;
}

WorkBudget::~WorkBudget() {
  of_thread = nullptr;
  tandem_stack_limit = nullptr;
}

absl::Duration WorkBudget::time() const { return ThreadProcessorTime() - begin_; }

WorkBudget::End WorkBudget::Check(const char* stack_place) {
  if (stack_place < tandem_stack_limit) return End::kStack;
  if (limits_.unwanted != nullptr && limits_.unwanted->load(std::memory_order_relaxed)) {
    return End::kUnwanted;
  }
  if (bytes_ > limits_.bytes) return End::kBytes;
  return num_loops_++ >= limits_.loops || time() > limits_.time ? End::kTime : End::kNone;
}

void WorkBudget::CheckLimits(const char* stack_place) {
  const bool unwinds = std::uncaught_exceptions() > 0;
  if (end_ == End::kNone && !unwinds) end_ = Check(stack_place);
  if (end_ != End::kNone || limits_.loops < std::numeric_limits<int64_t>::max()) {
    tandem_loops_left = 0;  // check again at the next loop
  }
  if (end_ == End::kNone) return;
  if (unwinds) return;
  // The exception unwinds through the library to the owner of the budget.
  std::rethrow_exception(std::make_exception_ptr(Spent()));
}

void WorkBudget::BeforeNew(size_t size) {
  if (end_ != End::kNone || std::uncaught_exceptions() > 0) return;
  if (static_cast<int64_t>(size) <= limits_.bytes / 2 * 3 - bytes_) return;
  end_ = End::kBytes;
  OutOfMemory();
}

void WorkBudget::OnChange(int64_t bytes) {
  bytes_ += bytes;
  if (bytes_ > limits_.bytes) tandem_loops_left = 0;  // check at the next loop
}

absl::Status WorkBudget::status() const {
  switch (end_) {
    case End::kNone:
      return absl::OkStatus();
    case End::kTime:
      return absl::OutOfRangeError(
          absl::StrCat("takes more than ", absl::FormatDuration(limits_.time)));
    case End::kStack:
      return absl::OutOfRangeError("is nested too deeply");
    case End::kBytes:
      return absl::OutOfRangeError(absl::StrCat("takes more than ", limits_.bytes, " bytes"));
    case End::kUnwanted:
      return absl::CancelledError("is no longer wanted");
  }
  TANDEM_CHECK(false);
}

absl::Duration TimeAccount::LeftAt(size_t depth) const {
  absl::Duration left = left_ - places_[0].time();
  for (size_t i = 1; i <= depth; ++i) left = Refilled(left) - places_[i].time();
  return left;
}

absl::Duration TimeAccount::LeftForMask() const {
  return LeftAt(depth_) + places_[depth_].mask_time;
}

void TimeAccount::AddMask(absl::Duration time) {
  places_[depth_].mask_time = time;
  for_drafts_ -= time;
}

void TimeAccount::AddToken(TokenId token, absl::Duration time) {
  if (depth_ + 1 == places_.size() || places_[depth_ + 1].token != token) {
    places_.resize(depth_ + 1);
    places_.push_back({.token = token});
  }
  ++depth_;
  places_[depth_].accept_time = time;
  for_drafts_ -= time;
}

void TimeAccount::Undo() {
  TANDEM_CHECK(depth_ > 0);
  --depth_;
}

void TimeAccount::Commit() {
  for (; depth_ > 0; --depth_) {
    left_ = Refilled(left_ - places_[0].time());
    for_drafts_ = Refilled(for_drafts_ + places_[0].time());
    replay_time_ += places_[1].accept_time;
    places_.erase(places_.begin());
  }
}

}  // namespace tandem

extern "C" {

__thread int tandem_loops_left = 0;
__thread const char* tandem_stack_limit = nullptr;

void tandem_look_at_budget() {
  tandem_loops_left = tandem::kLoopsPerLook;
  if (tandem::of_thread == nullptr) return;
  tandem::of_thread->CheckLimits(static_cast<const char*>(__builtin_frame_address(0)));
}

}  // extern "C"

// The program's operator new: that of the C++ library, which also counts for a budget. Weak, so
// that a program which has its own one keeps it.
#if TANDEM_COUNTS_BYTES
__attribute__((weak)) void* operator new(std::size_t size) {
  tandem::WorkBudget* const budget = tandem::of_thread;
  if (budget != nullptr) budget->BeforeNew(size);
  void* const memory = std::malloc(std::max<std::size_t>(size, 1));
  if (memory == nullptr) tandem::OutOfMemory();
  if (budget != nullptr) budget->OnChange(static_cast<int64_t>(malloc_usable_size(memory)));
  return memory;
}

__attribute__((weak)) void operator delete(void* memory) noexcept {
  tandem::WorkBudget* const budget = tandem::of_thread;
  if (budget != nullptr) budget->OnChange(-static_cast<int64_t>(malloc_usable_size(memory)));
  std::free(memory);
}

__attribute__((weak)) void operator delete(void* memory, std::size_t) noexcept {
  ::operator delete(memory);
}
#endif
