#ifndef TANDEM_BASE_CHECK_H_
#define TANDEM_BASE_CHECK_H_

#include <cstdio>
#include <cstdlib>

// Aborts if a precondition does not hold. For programming errors only; bad input is an
// absl::Status.
#define TANDEM_CHECK(condition)                                                          \
  do {                                                                                   \
    if (!(condition)) [[unlikely]] {                                                     \
      std::fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                      \
    }                                                                                    \
  } while (false)

// The same for hot loops: checked in debug builds and under sanitizers, not evaluated in others.
#ifdef TANDEM_DCHECKS
#define TANDEM_DCHECK(condition) TANDEM_CHECK(condition)
#else
#define TANDEM_DCHECK(condition) static_cast<void>(sizeof(!(condition)))
#endif

#endif  // TANDEM_BASE_CHECK_H_
