#include "base/free_memory.h"

#include <cstddef>

// glibc's. Null where there is none.
extern "C" [[gnu::weak]] int malloc_trim(size_t keep_at_the_end) noexcept;

namespace tandem {

void ReturnFreeMemory() {
  if (&malloc_trim != nullptr) malloc_trim(0);
}

}  // namespace tandem
