// A cache of a model's packed weights: a safetensors file of bytes, which later starts map instead
// of packing again. It may be deleted at any time. The last entry holds a checksum for each MiB
// before it, header and padding included.
#ifndef TANDEM_MODEL_PACKED_FILE_H_
#define TANDEM_MODEL_PACKED_FILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/hash_map.h"
#include "base/mapped_file.h"
#include "base/output_folder.h"
#include "kernels/backend.h"
#include "model/checkpoint/safetensors.h"

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
  HashMap<std::string, absl::Span<const std::byte>> entries_;
};

// Whether a file of this name is an unfinished packed file, "model-0123456789abcdef.safetensors"
// plus the suffix that OutputFolder::NewPart appends, or a PackingTurn's lock.
bool IsUnfinishedPackedName(absl::string_view name);
// Removes the unfinished files that killed processes left in this folder. Keeps those that are
// being written, whichever process or container writes them.
void RemoveUnfinishedPackedFiles(const std::string& folder);

// The turn to pack some weights, which one model on this machine has at a time. Move-only. Other
// processes get the turn when it is destroyed, and when this process ends in any way.
class PackingTurn {
 public:
  // Waits while another model has the turn, and logs that. UNAVAILABLE if the other one makes no
  // progress for `patience`. Where the file system has no locks, every model has the turn.
  static absl::StatusOr<PackingTurn> Take(const PackedSource& source,
                                          absl::Duration patience = absl::Seconds(10));
  PackingTurn(PackingTurn&& other) noexcept
      : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}
  PackingTurn& operator=(PackingTurn&& other) = delete;
  ~PackingTurn();

  // Tells those that wait that there is progress.
  void ReportProgress() const;

 private:
  PackingTurn(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}

  std::string path_;  // of an empty file that is locked
  int descriptor_;
};

// Weights that are packed into memory, which has the layout of their file, and then written to the
// file. Each written part is at once mapped in place of the memory, so that there are two copies of
// at most a chunk of 4 MiB. The file appears under its name only when it is complete, and the
// mappings stay valid if that fails. Thread-compatible, apart from Await.
class PackedFileWriter {
 public:
  // Begins a file of at most `max_entries` entries, with names of at most 400 bytes, and at most
  // `max_bytes`, counting each entry as PaddedSize. RESOURCE_EXHAUSTED if there is not enough
  // memory, or if the disk has less free space than twice the size of the model's files.
  // REQUIRES: backend->memory_is_host().
  static absl::StatusOr<std::unique_ptr<PackedFileWriter>> Create(const PackedSource& source,
                                                                  int max_entries, size_t max_bytes,
                                                                  PackingTurn turn,
                                                                  Backend* backend);
  // The size of an entry of so many bytes.
  static size_t PaddedSize(size_t bytes);

  // Stops writing. Removes a file that is not complete.
  ~PackedFileWriter();

  // Returns memory for an entry, as PackedFile::Find does, to be filled before the next call. It
  // lives as long as the writer. If the machine's memory is too small for all entries, first writes
  // those before it.
  absl::StatusOr<absl::Span<std::byte>> Add(absl::string_view name, size_t bytes);
  absl::Status Add(absl::string_view name, absl::Span<const std::byte> bytes);
  // Writes the file on a thread of low priority, then applies the folder's limit
  // (LimitPackedFiles). A failure is logged, and then the weights stay in memory.
  // REQUIRES: all entries have been added.
  void WriteInBackground();
  // Writes what is not yet written with normal priority, and waits for it. Returns the first
  // failure to write the file. Thread-safe.
  // REQUIRES: WriteInBackground was called.
  absl::Status Await();

 private:
  PackedFileWriter(const PackedSource& source, int max_entries, OutputFolder folder,
                   OutputFile file, PackingTurn turn);
  absl::Span<std::byte> Image(size_t begin, size_t end) const;
  void RunThread(bool has_low_priority);
  bool stops() const;
  void SetStops(bool stops);
  void Stop();
  absl::Status WriteAll();
  absl::Status WriteChunk(size_t begin, size_t end);
  absl::Status WriteWholeChunks(size_t end);
  absl::Status Finish();

  const PackedSource source_;
  const size_t header_bytes_;  // reserved for the header, which is written last
  Buffer image_;               // the file's bytes up to its checksums
  size_t size_;                // bytes added so far, header included
  size_t capacity_ = 0;
  std::vector<TensorHeader> entries_;
  bool writes_at_once_ = false;  // because memory is short
  // Used by the thread while there is one.
  std::optional<PackingTurn> turn_;
  std::optional<OutputFolder> folder_;
  std::optional<OutputFile> file_;  // until it is complete or has failed
  size_t written_;                  // chunks from the second one to here are written
  std::vector<uint64_t> checksums_;
  absl::Status status_;
  absl::Mutex await_mutex_;
  mutable absl::Mutex stop_mutex_;
  bool stops_ ABSL_GUARDED_BY(stop_mutex_) = false;
  std::thread thread_;
};

}  // namespace tandem

#endif  // TANDEM_MODEL_PACKED_FILE_H_
