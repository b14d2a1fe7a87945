// A model's packed weights in a file of their own, which later starts map in place of packing them
// again: a safetensors file of bytes. Whoever wants the space may remove it.
#ifndef TANDEM_MODEL_PACKED_FILE_H_
#define TANDEM_MODEL_PACKED_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/hash_map.h"
#include "base/mapped_file.h"
#include "base/output_folder.h"

namespace tandem {

// What packed weights are made of, and the file that has them.
struct PackedSource {
  std::string path;      // of the packed weights
  std::string identity;  // bytes that change when the weights' bits might
  int64_t bytes = 0;     // of the model's files

  // Of the weights in `files`, packed as `how` says, in a file of `folder`. A file is taken for
  // what it was by its path, size, time of change and first bytes. Errors are of a file.
  static absl::StatusOr<PackedSource> Of(absl::Span<const std::string> files, absl::string_view how,
                                         const std::string& folder);
};

// Move-only. What Find gives stays valid, at the same address, as long as some object has it.
class PackedFile {
 public:
  // NOT_FOUND if there is none, FAILED_PRECONDITION if it is of another identity, and errors of
  // what it is not, which are to be taken alike: it is to be made anew.
  static absl::StatusOr<PackedFile> Open(const PackedSource& source);

  // What was added by this name, and zeros to the next multiple of kPackedAlignment, at such a
  // multiple. FAILED_PRECONDITION if nothing was.
  absl::StatusOr<absl::Span<const std::byte>> Find(absl::string_view name) const;

 private:
  MappedFile file_;
  std::string path_;
  HashMap<std::string, absl::Span<const std::byte>> entries_;
};

// Makes such a file, which is there when it is complete, and not before.
class PackedFileWriter {
 public:
  // `most_entries` with names of 400 bytes at most will be added. RESOURCE_EXHAUSTED if the disk
  // has less than twice the model's files free.
  static absl::StatusOr<PackedFileWriter> Create(const PackedSource& source, int most_entries);

  absl::Status Add(absl::string_view name, absl::Span<const std::byte> bytes);
  // Puts it in its place, and on the disk.
  absl::Status Finish();

 private:
  struct Entry {
    std::string name;
    int64_t begin = 0;
    int64_t end = 0;
  };
  PackedFileWriter(const PackedSource& source, int most_entries, OutputFolder folder,
                   OutputFile file, std::string path);

  const PackedSource source_;
  const int64_t header_bytes_;
  OutputFolder folder_;
  OutputFile file_;
  std::string path_;  // until it is complete
  std::vector<Entry> entries_;
};

}  // namespace tandem

#endif  // TANDEM_MODEL_PACKED_FILE_H_
