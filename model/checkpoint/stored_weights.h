#ifndef TANDEM_MODEL_CHECKPOINT_STORED_WEIGHTS_H_
#define TANDEM_MODEL_CHECKPOINT_STORED_WEIGHTS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/hash_map.h"
#include "base/mapped_file.h"
#include "model/checkpoint/safetensors.h"
#include "model/checkpoint/weights.h"

namespace tandem {

// The tensors of safetensors files, torch files, or any other files that a subclass splits into
// entries.
class StoredWeights : public Weights {
 public:
  StoredWeights() = default;
  // Adds the tensors of a safetensors file. Returns the errors of MappedFile::Open and
  // ParseSafetensors, and INVALID_ARGUMENT for a tensor that has been added already.
  absl::Status Add(const std::string& path);
  // The same for a file that torch.save wrote.
  absl::Status AddTorchFile(const std::string& path);
  // The same for entries whose bytes outlive this object, as if they were in that file.
  absl::Status AddEntries(std::vector<SafetensorsEntry> entries, const std::string& path);
  // The file or folder to name when a tensor is missing.
  void set_source(const std::string& source) { source_ = source; }

  // Returns a tensor of any dtype as its file has it; null if there is none.
  const SafetensorsEntry* Find(absl::string_view name) const;
  // Returns the file that holds a tensor; null if none does.
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

 protected:
  struct Tensor {
    std::string path;
    SafetensorsEntry entry;
    int64_t stack_size = 0;  // number of equal parts, of which `entry` is one; 0: whole
  };
  // INVALID_ARGUMENT, naming both tensors, if `name` has been added already.
  absl::Status AddTensor(const std::string& name, Tensor&& tensor);
  // Returns the error for an absent tensor.
  virtual absl::Status NotFound(std::string_view name, absl::Span<const int64_t> shape) const;
  // The supported dtypes, as messages list them.
  struct DTypes {
    const char* floats = "F32, F16, BF16";
    const char* integers = "I64, I32, BOOL";
  };
  explicit StoredWeights(const DTypes& allowed) : allowed_(allowed) {}

 private:
  // NOT_FOUND if the tensor is absent; INVALID_ARGUMENT unless it has this shape.
  absl::StatusOr<const SafetensorsEntry*> FindOfShape(std::string_view name,
                                                      absl::Span<const int64_t> shape) const;
  const Tensor& At(std::string_view name) const;  // REQUIRES: Has(name)
  const void* Aligned(const SafetensorsEntry& entry) const;

  const DTypes allowed_{};
  std::string source_;
  std::vector<MappedFile> files_;
  std::vector<std::string> paths_;  // of files_
  HashMap<std::string, Tensor> tensors_;
  mutable std::mutex copies_mutex_;
  // Copies of unaligned tensors, by their bytes in the file.
  mutable std::map<const std::byte*, std::unique_ptr<std::byte[]>> copies_;
};

}  // namespace tandem

#endif  // TANDEM_MODEL_CHECKPOINT_STORED_WEIGHTS_H_
