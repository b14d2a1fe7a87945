// A cache of a model's packed weights: a safetensors file of bytes, which later starts map instead
// of packing again. It may be deleted at any time. The last entry holds a checksum for each MiB
// before it, header and padding included.
#ifndef TANDEM_MODEL_PACKED_FILE_H_
#define TANDEM_MODEL_PACKED_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/mapped_file.h"
#include "base/output_folder.h"
#include "checkpoint/safetensors.h"

namespace tandem {

// The source of packed weights, and the file that caches them.
struct PackedSource {
  std::string path;              // path of the packed weights
  std::string identity;          // changes whenever the packed bits may change
  int64_t bytes = 0;             // total size of the model's files
  int64_t max_folder_bytes = 0;  // limit of the packed files in the folder; 0: none

  // Describes the weights in `files`, packed as `how` says and cached in `folder`. A file counts as
  // unchanged if its path, size, modification time and first bytes are the same. Errors name a
  // file.
  static absl::StatusOr<PackedSource> Of(absl::Span<const std::string> files, absl::string_view how,
                                         const std::string& folder);
};

// A mapped file of packed weights. Move-only. The results of Find stay valid, at the same address,
// until the mapping is destroyed.
class PackedFile {
 public:
  // Opens and checks the file. NOT_FOUND if there is no such file, FAILED_PRECONDITION if its
  // identity differs, DATA_LOSS if it is damaged, and the errors of a malformed safetensors file.
  // The caller rebuilds it in each case. Reads the whole file, which the first pass would do
  // otherwise.
  static absl::StatusOr<PackedFile> Open(const PackedSource& source);

  // Returns the bytes added under this name, aligned to kPackedAlignment and zero-padded to a
  // multiple of it. FAILED_PRECONDITION if there is no such entry.
  absl::StatusOr<absl::Span<const std::byte>> Find(absl::string_view name) const;

 private:
  absl::Status CheckBytes() const;

  MappedFile file_;
  std::string path_;
  absl::flat_hash_map<std::string, absl::Span<const std::byte>> entries_;
};

// Whether a file of this name is an unfinished packed file.
bool IsUnfinishedPackedName(absl::string_view name);
// Removes the unfinished files that killed processes left in this folder. Keeps those that are
// being written, whichever process or container writes them.
void RemoveUnfinishedPackedFiles(const std::string& folder);

// Writes a file of packed weights. It appears under its name only when it is complete.
class PackedFileWriter {
 public:
  // Begins a file of at most `max_entries` entries, with names of at most 400 bytes.
  // RESOURCE_EXHAUSTED if the disk has less free space than twice the size of the model's files.
  static absl::StatusOr<PackedFileWriter> Create(const PackedSource& source, int max_entries);

  absl::Status Add(absl::string_view name, absl::Span<const std::byte> bytes);
  // Flushes the file to the disk and moves it into place. Then applies the folder's limit
  // (LimitPackedFiles).
  absl::Status Finish();

 private:
  PackedFileWriter(const PackedSource& source, int max_entries, OutputFolder folder,
                   OutputFile file);

  const PackedSource source_;
  const size_t header_bytes_;  // reserved for the header, which is written last
  OutputFolder folder_;
  OutputFile file_;
  int64_t size_;  // bytes written so far, header included
  std::vector<TensorHeader> entries_;
};

}  // namespace tandem

#endif  // TANDEM_MODEL_PACKED_FILE_H_
