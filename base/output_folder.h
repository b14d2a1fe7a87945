#ifndef TANDEM_BASE_OUTPUT_FOLDER_H_
#define TANDEM_BASE_OUTPUT_FOLDER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tandem {

// Writes all of `bytes`, even if signals or a slow reader interrupt the writes. Errors begin with
// `name`: RESOURCE_EXHAUSTED if the disk is full.
absl::Status WriteAll(int descriptor, absl::string_view bytes, absl::string_view name);
// Whether `status` is WriteAll's error for a pipe whose reader has closed it.
bool IsReaderGone(const absl::Status& status);

// Marks the new file or folder `path`, which is open as `descriptor`, as in use until the
// descriptor is closed. The system closes it when the process ends, even if it is killed. Returns
// false if RemoveIfUnused has already removed it: the caller must create another one.
bool MarkInUse(int descriptor, const std::string& path);
// Removes a file, or a folder with all of its contents, that a killed process has left. Does
// nothing if it is marked as in use, also by a process of another container (marks do not rely on
// process ids).
void RemoveIfUnused(const std::string& path);

// A file being written. Move-only. Errors begin with the file's path.
class OutputFile {
 public:
  OutputFile(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  OutputFile(OutputFile&& other) noexcept
      : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}
  OutputFile& operator=(OutputFile&& other) = delete;
  ~OutputFile();

  absl::Status Write(absl::string_view bytes);
  // Moves to an offset from the beginning. A gap after the end reads as zeros.
  absl::Status Seek(int64_t offset);
  // Returns when all written bytes are on the disk.
  absl::Status Sync();
  // The same for some bytes, from `offset` on. Until Sync() the file may still be lost if the
  // machine fails.
  absl::Status Sync(int64_t offset, int64_t bytes);
  // Puts a read-only mapping of the file's bytes from `offset` on in the place of `memory`, for all
  // threads at once. The memory stays as it is if the file system cannot map files. The mapping
  // stays valid after Close and if the file is removed.
  // REQUIRES: `memory`, which begins and ends with a page, has the bytes of the file.
  void MapOver(int64_t offset, absl::Span<std::byte> memory) const;
  // Must be called for the file to be complete.
  absl::Status Close();
  const std::string& path() const { return path_; }

 private:
  friend class OutputFolder;
  std::string path_;
  int descriptor_;
};

// Writes a file that takes the place of `path`, whose folder must exist. If that fails, an earlier
// file stays as it is.
absl::Status ReplaceFile(const std::string& path, absl::string_view text);

// A folder in which new files are written, all or none: the destructor removes the files made here,
// and only those, unless Keep() was called. Move-only.
class OutputFolder {
 public:
  // Creates the folder and its parents if necessary. ALREADY_EXISTS if it is not empty.
  static absl::StatusOr<OutputFolder> Create(const std::string& path);
  // Uses the folder in which `file` will be created. It must exist and may contain other files.
  static absl::StatusOr<OutputFolder> Around(const std::string& file);
  OutputFolder(OutputFolder&& other) noexcept
      : path_(std::move(other.path_)),
        is_ours_(std::exchange(other.is_ours_, false)),
        files_(std::exchange(other.files_, {})) {}
  OutputFolder& operator=(OutputFolder&& other) = delete;
  ~OutputFolder();

  // Returns RESOURCE_EXHAUSTED if the disk has fewer than `bytes` free.
  absl::Status CheckFreeSpace(int64_t bytes) const;
  // Creates a file. ALREADY_EXISTS if another process has created it in the meantime.
  absl::StatusOr<OutputFile> NewFile(const std::string& name);
  // Creates a file called `name`.XXXXXX.part, which no other process uses, and marks it as in use
  // while it is open.
  absl::StatusOr<OutputFile> NewPart(const std::string& name);
  // Keeps the folder and its files.
  void Keep();

 private:
  OutputFolder(std::string path, bool is_ours) : path_(std::move(path)), is_ours_(is_ours) {}

  std::string path_;
  bool is_ours_;  // created here, so removed with its files
  std::vector<std::string> files_;
};

}  // namespace tandem

#endif  // TANDEM_BASE_OUTPUT_FOLDER_H_
