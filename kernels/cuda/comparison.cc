#include "kernels/cuda/comparison.h"

#include <cstddef>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/launch_shapes.h"

namespace tandem::cuda {

absl::StatusOr<bool> AreEqual(const void* a, const void* b, int64_t num_words, uint32_t* counts,
                              Backend* backend, Stream stream) {
  const CountDifferencesTask task{.a = a, .b = b, .num_words = num_words, .counts = counts};
  std::vector<uint32_t> found(NumDifferenceCounts(num_words));
  Error error = Launch(task, stream);
  if (error == kNoError) {
    backend->Download(counts, absl::MakeSpan(reinterpret_cast<std::byte*>(found.data()),
                                             found.size() * sizeof(uint32_t)));
    error = Wait(stream);
  }
  if (error != kNoError) {
    return absl::InternalError(absl::StrCat("comparing: ", ErrorText(error)));
  }
  return std::accumulate(found.begin(), found.end(), uint64_t{0}) == 0;
}

}  // namespace tandem::cuda
