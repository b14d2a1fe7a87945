#include "tests/allocation/failing_new.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <limits>
#include <new>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace tandem {
namespace {

std::atomic<int64_t> num_made{0};
// Those that are refused: from the first to the last.
std::atomic<int64_t> first_failing{FailingNew::kNone};
std::atomic<int64_t> last_failing{FailingNew::kNone};

std::atomic<int64_t> num_bytes{0};  // held now
std::atomic<int64_t> most_bytes_held{0};
std::atomic<int64_t> bytes_before{0};

thread_local bool is_exempt_here = false;

bool IsRefused() {
  if (is_exempt_here) return false;
  const int64_t number = num_made.fetch_add(1);
  return number >= first_failing.load(std::memory_order_relaxed) &&
         number <= last_failing.load(std::memory_order_relaxed);
}

void* Counted(void* data) {
  const int64_t now = num_bytes += static_cast<int64_t>(malloc_usable_size(data));
  int64_t most = most_bytes_held.load(std::memory_order_relaxed);
  while (now > most && !most_bytes_held.compare_exchange_weak(most, now)) {
  }
  return data;
}

void Free(void* data) {
  num_bytes -= static_cast<int64_t>(malloc_usable_size(data));
  std::free(data);
}

// Null if it is refused.
void* TryAllocate(std::size_t size) {
  return IsRefused() ? nullptr : Counted(std::malloc(std::max<std::size_t>(size, 1)));
}
void* TryAllocate(std::size_t size, std::align_val_t alignment) {
  const auto unit = static_cast<std::size_t>(alignment);
  const std::size_t rounded = (std::max<std::size_t>(size, 1) + unit - 1) / unit * unit;
  return IsRefused() ? nullptr : Counted(std::aligned_alloc(unit, rounded));
}

void* Allocated(void* data) {
  if (data == nullptr) std::rethrow_exception(std::make_exception_ptr(std::bad_alloc()));
  return data;
}

}  // namespace

FailingNew::FailingNew(int64_t failing, Span span) {
  num_made = 0;
  most_bytes_held = bytes_before = num_bytes.load();
  first_failing = failing;
  const bool goes_on = failing != kNone && span == Span::kAllBehind;
  last_failing = goes_on ? std::numeric_limits<int64_t>::max() : failing;
}
FailingNew::~FailingNew() { last_failing = kNone; }
int64_t FailingNew::num_allocations() { return num_made.load(); }
int64_t FailingNew::most_bytes() { return most_bytes_held.load() - bytes_before.load(); }
void FailingNew::ExemptThisThread(bool is_exempt) { is_exempt_here = is_exempt; }

Attempt TryWithFailure(int64_t failing, const std::function<absl::Status()>& attempt) {
  Attempt made;
  const FailingNew failing_new(failing);
  try {
    made.status = attempt();
  } catch (const std::bad_alloc&) {
    made.has_thrown = true;
  }
  return made;
}

int FailEachAllocation(const std::function<absl::Status()>& attempt,
                       const std::function<void()>& check, int max_failures) {
  EXPECT_TRUE(TryWithFailure(FailingNew::kNone, attempt).ok());
  const int64_t total = FailingNew::num_allocations();
  const int64_t first_ones = std::min<int64_t>(total, max_failures / 2);
  const int64_t step = 1 + (total - first_ones) / std::max(1, max_failures / 2);
  int num_failed = 0;
  for (int64_t failing = 0; failing < total; failing += failing < first_ones ? 1 : step) {
    SCOPED_TRACE(absl::StrCat("allocation ", failing, " of ", total));
    num_failed += TryWithFailure(failing, attempt).ok() ? 0 : 1;
    check();
    if (testing::Test::HasFailure()) break;
  }
  const Attempt last = TryWithFailure(FailingNew::kNone, attempt);
  EXPECT_TRUE(last.ok()) << last.status;
  return num_failed;
}

}  // namespace tandem

// All of them: what one that is left out allocates may be freed by one that is not.
void* operator new(std::size_t size) { return tandem::Allocated(tandem::TryAllocate(size)); }
void* operator new[](std::size_t size) { return tandem::Allocated(tandem::TryAllocate(size)); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return tandem::Allocated(tandem::TryAllocate(size, alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return tandem::Allocated(tandem::TryAllocate(size, alignment));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return tandem::TryAllocate(size);
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return tandem::TryAllocate(size);
}
void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return tandem::TryAllocate(size, alignment);
}
void* operator new[](std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return tandem::TryAllocate(size, alignment);
}
// Inlined beside a new, their free() looks like the wrong one to GCC.
[[gnu::noinline]] void operator delete(void* data) noexcept { tandem::Free(data); }
[[gnu::noinline]] void operator delete[](void* data) noexcept { tandem::Free(data); }
[[gnu::noinline]] void operator delete(void* data, std::size_t) noexcept { tandem::Free(data); }
[[gnu::noinline]] void operator delete[](void* data, std::size_t) noexcept { tandem::Free(data); }
[[gnu::noinline]] void operator delete(void* data, std::align_val_t) noexcept {
  tandem::Free(data);
}
[[gnu::noinline]] void operator delete[](void* data, std::align_val_t) noexcept {
  tandem::Free(data);
}
[[gnu::noinline]] void operator delete(void* data, std::size_t, std::align_val_t) noexcept {
  tandem::Free(data);
}
[[gnu::noinline]] void operator delete[](void* data, std::size_t, std::align_val_t) noexcept {
  tandem::Free(data);
}
