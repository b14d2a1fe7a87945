#ifndef TANDEM_TOOLS_NPZ_FILE_H_
#define TANDEM_TOOLS_NPZ_FILE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace tandem {

// An array in numpy's .npy format, version 1.0, in C order.
struct NpyArray {
  std::string name;
  std::string type;  // as numpy writes it: "<f4", "<f2", "<i4"
  size_t item_bytes = 0;
  std::vector<int64_t> shape;
  // Returns the next bytes, at least one per call. Called until all bytes of the shape have been
  // returned. The bytes must stay valid until the next call.
  std::function<absl::StatusOr<absl::Span<const std::byte>>()> next;
};

// Writes `arrays` in this order to `path`, an archive that numpy.load reads. The entries are not
// compressed. An error leaves no file. Errors name the file, or are those of `next`.
absl::Status WriteNpz(const std::string& path, std::vector<NpyArray> arrays);

}  // namespace tandem

#endif  // TANDEM_TOOLS_NPZ_FILE_H_
