// Preloaded into a program: from SIGUSR2 to SIGUSR1, one of FAILING_MALLOC allocations fails, drawn
// at random. For glibc.
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

extern "C" {

void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* memory, size_t size);

static volatile sig_atomic_t fails = 0;
static uint64_t one_of = UINT64_MAX;

static void OnSignal(int number) { fails = number == SIGUSR2 ? 1 : 0; }

__attribute__((constructor)) static void SetUp() {
  const char* const text = std::getenv("FAILING_MALLOC");
  if (text != nullptr && std::atoi(text) > 0) one_of = static_cast<uint64_t>(std::atoi(text));
  std::signal(SIGUSR1, OnSignal);
  std::signal(SIGUSR2, OnSignal);
}

static bool FailsNow() {
  static __thread uint64_t state = 0;  // xorshift64, seeded by the thread's address
  if (fails == 0) return false;
  if (state == 0) state = reinterpret_cast<uintptr_t>(&state) | 1;
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  if (state % one_of != 0) return false;
  errno = ENOMEM;
  return true;
}

void* malloc(size_t size) { return FailsNow() ? nullptr : __libc_malloc(size); }
void* calloc(size_t count, size_t size) {
  return FailsNow() ? nullptr : __libc_calloc(count, size);
}
void* realloc(void* memory, size_t size) {
  return FailsNow() ? nullptr : __libc_realloc(memory, size);
}

}  // extern "C"
