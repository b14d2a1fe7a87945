#include "constraint/work_budget.h"

#include <malloc.h>
#include <pthread.h>

#include <algorithm>
#include <ctime>
#include <exception>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace tandem {
namespace {

// Asking a clock of processor time takes as long as a few requests for memory.
constexpr int64_t kRequestsPerLook = 16;

thread_local WorkBudget* of_thread = nullptr;

absl::Duration ProcessorTime() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return absl::DurationFromTimespec(time);
}

// Where the stack is, about.
const char* StackPlace() { return static_cast<const char*>(__builtin_frame_address(0)); }

// The stack's end, but for what is needed without asking for memory.
const char* LowestStackPlace() {
  constexpr size_t kReserve = size_t{256} << 10;
  pthread_attr_t attributes;
  TANDEM_CHECK(pthread_getattr_np(pthread_self(), &attributes) == 0);
  void* end = nullptr;
  size_t size = 0;
  pthread_attr_getstack(&attributes, &end, &size);
  pthread_attr_destroy(&attributes);
  return static_cast<const char*>(end) + std::min(kReserve, size / 2);
}

// With what was asked for, and whatever goes with it.
int64_t SizeOf(void* memory) { return static_cast<int64_t>(malloc_usable_size(memory)); }

void* Taken(WorkBudget* budget, void* memory) {
  if (budget != nullptr) budget->Add(SizeOf(memory));
  return memory;
}

void GiveBack(void* memory) {
  if (of_thread != nullptr && memory != nullptr) of_thread->Add(-SizeOf(memory));
}

}  // namespace

WorkBudget::WorkBudget(const Limits& limits)
    : limits_(limits),
      lowest_(limits.watches_stack ? LowestStackPlace() : nullptr),
      begin_(ProcessorTime()) {
  TANDEM_CHECK(of_thread == nullptr);
  of_thread = this;
}

WorkBudget::~WorkBudget() { of_thread = nullptr; }

WorkBudget* WorkBudget::OfThread() { return of_thread; }

absl::Duration WorkBudget::time() const { return ProcessorTime() - begin_; }

WorkBudget::End WorkBudget::Check(size_t size) {
  const int64_t left = limits_.bytes - bytes_;
  if (left < 0 || size > static_cast<size_t>(left)) return End::kBytes;
  if (StackPlace() < lowest_) return End::kStack;
  if (limits_.unwanted != nullptr && limits_.unwanted->load(std::memory_order_relaxed)) {
    return End::kUnwanted;
  }
  if (num_requests_++ % kRequestsPerLook != 0) return End::kNone;
  return time() > limits_.time ? End::kTime : End::kNone;
}

void WorkBudget::Take(size_t size) {
  if (std::uncaught_exceptions() > 0) return;
  if (end_ == End::kNone) end_ = Check(size);
  if (end_ == End::kNone) return;
  // It unwinds through the library, which is how whoever made the budget gets it back.
  std::rethrow_exception(std::make_exception_ptr(Spent()));
}

void WorkBudget::Add(int64_t bytes) {
  bytes_ += bytes;
  max_bytes_ = std::max(max_bytes_, bytes_);
}

absl::Status WorkBudget::status() const {
  switch (end_) {
    case End::kNone:
      return absl::OkStatus();
    case End::kBytes:
      return absl::OutOfRangeError(
          absl::StrCat("takes more than ", limits_.bytes >> 20, " MiB of memory"));
    case End::kTime:
      return absl::OutOfRangeError(
          absl::StrCat("takes more than ", absl::FormatDuration(limits_.time)));
    case End::kStack:
      return absl::OutOfRangeError("is nested too deeply");
    case End::kUnwanted:
      return absl::CancelledError("is no longer wanted");
  }
  TANDEM_CHECK(false);
}

}  // namespace tandem

// What the library calls in place of operator new and its like.
extern "C" {

void* tandem_budgeted_new(size_t size) {
  tandem::WorkBudget* const budget = tandem::WorkBudget::OfThread();
  if (budget != nullptr) budget->Take(size);
  return tandem::Taken(budget, ::operator new(size));
}

void* tandem_budgeted_new_array(size_t size) {
  tandem::WorkBudget* const budget = tandem::WorkBudget::OfThread();
  if (budget != nullptr) budget->Take(size);
  return tandem::Taken(budget, ::operator new[](size));
}

void tandem_budgeted_delete(void* memory) {
  tandem::GiveBack(memory);
  ::operator delete(memory);
}

void tandem_budgeted_delete_array(void* memory) {
  tandem::GiveBack(memory);
  ::operator delete[](memory);
}

void tandem_budgeted_delete_sized(void* memory, size_t /*size*/) { tandem_budgeted_delete(memory); }

void tandem_budgeted_delete_array_sized(void* memory, size_t /*size*/) {
  tandem_budgeted_delete_array(memory);
}

}  // extern "C"
