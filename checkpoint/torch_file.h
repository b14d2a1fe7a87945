// The state dicts that torch.save writes ("pytorch_model.bin"): a zip archive of an object in
// Python's pickle format, data.pkl, and of a file for each storage of tensors. A pickle is a
// program, of which Python runs any function; here it can make dicts, tuples, numbers, texts and
// tensors, and whatever else it asks for is refused. Formats: https://docs.python.org/3/library/
// pickletools.html, and torch/serialization.py.
#ifndef TANDEM_CHECKPOINT_TORCH_FILE_H_
#define TANDEM_CHECKPOINT_TORCH_FILE_H_

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "checkpoint/safetensors.h"

namespace tandem {

// The tensors of a file in memory, in the order of its dict, as if a safetensors file held them:
// they may share bytes. INVALID_ARGUMENT, one line naming the file, the tensor or the byte of the
// pickle, what was found and what is allowed.
absl::StatusOr<std::vector<SafetensorsEntry>> ParseTorchFile(absl::Span<const std::byte> file,
                                                             absl::string_view file_name);

}  // namespace tandem

#endif  // TANDEM_CHECKPOINT_TORCH_FILE_H_
