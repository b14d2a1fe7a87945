#ifndef TANDEM_CHECKPOINT_SAFETENSORS_WEIGHTS_H_
#define TANDEM_CHECKPOINT_SAFETENSORS_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/mapped_file.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/weights.h"

namespace tandem {

// The tensors of safetensors files, or of torch's, under their own names.
class SafetensorsWeights final : public Weights {
 public:
  // Adds the tensors of one file. The errors of MappedFile::Open and ParseSafetensors;
  // INVALID_ARGUMENT for a tensor that is there already.
  absl::Status Add(const std::string& path);
  // The same of a file that torch.save wrote (torch_file.h).
  absl::Status AddTorchFile(const std::string& path);
  // The same of entries whose bytes outlive this object, as if they were of that file.
  absl::Status AddEntries(std::vector<SafetensorsEntry> entries, const std::string& path);
  // The file or folder to name when a tensor is missing.
  void set_source(const std::string& source) { source_ = source; }

  // A tensor of any dtype as its file has it; null if there is none.
  const SafetensorsEntry* Find(absl::string_view name) const;
  // The file that holds a tensor; null if none does.
  const std::string* PathOf(absl::string_view name) const;
  size_t num_tensors() const { return tensors_.size(); }

  bool Has(std::string_view name) const override;
  absl::StatusOr<ConstMatrixView> Get(std::string_view name,
                                      absl::Span<const int64_t> shape) const override;
  absl::StatusOr<ConstMatrixView> Describe(std::string_view name,
                                           absl::Span<const int64_t> shape) const override;
  absl::StatusOr<std::vector<int64_t>> GetIntegers(std::string_view name,
                                                   int64_t size) const override;
  void Forget(std::string_view name) const override;
  std::vector<std::string> files() const override { return paths_; }
  std::vector<std::string> names() const override;
  int64_t num_elements(std::string_view name) const override;
  std::string Where(std::string_view name) const override;

 private:
  struct Tensor {
    std::string path;
    SafetensorsEntry entry;
  };

  // INVALID_ARGUMENT unless the tensor has this shape, NOT_FOUND unless it is there.
  absl::StatusOr<const Tensor*> FindOfShape(std::string_view name,
                                            absl::Span<const int64_t> shape) const;
  const void* Aligned(const SafetensorsEntry& entry) const;

  std::string source_;
  std::vector<MappedFile> files_;
  std::vector<std::string> paths_;  // of files_
  absl::flat_hash_map<std::string, Tensor> tensors_;
  mutable std::mutex copies_mutex_;
  mutable std::map<std::string, std::unique_ptr<std::byte[]>> copies_;  // of unaligned tensors
};

}  // namespace tandem

#endif  // TANDEM_CHECKPOINT_SAFETENSORS_WEIGHTS_H_
