// For fuzz targets.
#ifndef TANDEM_TESTS_FUZZING_H_
#define TANDEM_TESTS_FUZZING_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "base/check.h"

// libFuzzer's own mutation, of bytes.
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace tandem {

// Checks that an input was refused in one short line, which names the file "fuzz".
inline void CheckRefusal(const absl::Status& status, size_t max_bytes = 1000) {
  TANDEM_CHECK(status.message().size() < max_bytes);
  TANDEM_CHECK(absl::StartsWith(status.message(), "fuzz: "));
  TANDEM_CHECK(!absl::StrContains(status.message(), '\n'));
}

}  // namespace tandem

#endif  // TANDEM_TESTS_FUZZING_H_
