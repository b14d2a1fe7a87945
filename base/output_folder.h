#ifndef TANDEM_BASE_OUTPUT_FOLDER_H_
#define TANDEM_BASE_OUTPUT_FOLDER_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem {

// Writes all of `bytes`, however often a signal or a slow reader interrupts. Errors begin with
// `name`: RESOURCE_EXHAUSTED if the disk is full.
absl::Status WriteAll(int descriptor, absl::string_view bytes, absl::string_view name);
// Whether a status is that of a pipe whose reader has gone.
bool IsReaderGone(const absl::Status& status);

// Marks what is open at `descriptor`, a new file or folder at `path`, as in use until the
// descriptor is closed, which it is when the process ends however that may be. False if
// RemoveIfUnused came first: then it is gone, and another has to be made.
bool MarkInUse(int descriptor, const std::string& path);
// Removes a file or folder that a process left when it was killed, with everything in it;
// one that is marked as in use stays. It counts processes of other containers, whose ids mean
// nothing here.
void RemoveIfUnused(const std::string& path);

// A file being written. Move-only. Errors name the file, as those of WriteAll.
class OutputFile {
 public:
  OutputFile(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  OutputFile(OutputFile&& other) noexcept
      : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}
  OutputFile& operator=(OutputFile&& other) = delete;
  ~OutputFile();

  absl::Status Write(absl::string_view bytes);
  // Moves to an offset from the beginning. A gap behind the end reads as zeros.
  absl::Status Seek(int64_t offset);
  // Returns when what was written is on the disk.
  absl::Status Sync();
  // Drops what is on the disk from the page cache.
  void Forget();
  // Must be called for the file to be complete.
  absl::Status Close();
  const std::string& path() const { return path_; }

 private:
  friend class OutputFolder;
  std::string path_;
  int descriptor_;
};

// A folder of new files, all or none: unless Keep() is called, what was made is removed again, and
// nothing else is. Move-only.
class OutputFolder {
 public:
  // Makes the folder, and its parents, unless it is there. ALREADY_EXISTS if it is not empty.
  static absl::StatusOr<OutputFolder> Create(const std::string& path);
  // The folder of a file to be made, which must be there and may hold others.
  static absl::StatusOr<OutputFolder> Around(const std::string& file);
  OutputFolder(OutputFolder&& other) noexcept
      : path_(std::move(other.path_)),
        is_ours_(std::exchange(other.is_ours_, false)),
        files_(std::exchange(other.files_, {})) {}
  OutputFolder& operator=(OutputFolder&& other) = delete;
  ~OutputFolder();

  // RESOURCE_EXHAUSTED if the disk has fewer than `bytes` free.
  absl::Status CheckFreeSpace(int64_t bytes) const;
  // ALREADY_EXISTS if somebody else has made such a file meanwhile.
  absl::StatusOr<OutputFile> NewFile(const std::string& name);
  // A file called `name`.XXXXXX.part that no other process has, in use while it is open.
  absl::StatusOr<OutputFile> NewPart(const std::string& name);
  void Keep();

 private:
  OutputFolder(std::string path, bool is_ours) : path_(std::move(path)), is_ours_(is_ours) {}

  std::string path_;
  bool is_ours_;  // made here, so to be removed with its files
  std::vector<std::string> files_;
};

}  // namespace tandem

#endif  // TANDEM_BASE_OUTPUT_FOLDER_H_
