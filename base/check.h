#ifndef TANDEM_BASE_CHECK_H_
#define TANDEM_BASE_CHECK_H_

#include <cstdio>
#include <cstdlib>

// Aborts on a broken precondition. For programmer errors only; bad input is an absl::Status.
#define TANDEM_CHECK(condition)                                                          \
  do {                                                                                   \
    if (!(condition)) [[unlikely]] {                                                     \
      std::fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                      \
    }                                                                                    \
  } while (false)

#endif  // TANDEM_BASE_CHECK_H_
