#ifndef TANDEM_BASE_MAPPED_FILE_H_
#define TANDEM_BASE_MAPPED_FILE_H_

#include <cstddef>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace tandem {

// What errors about a file add where it ends before what it announces, as one does whose copy or
// download has stopped.
inline constexpr char kCutOff[] = "; the file seems to be cut off";

// A file's bytes, mapped read-only. Move-only. The bytes stay valid, at the same address, until the
// object that holds the mapping is destroyed. Truncating the file meanwhile is the caller's fault.
class MappedFile {
 public:
  // NOT_FOUND or PERMISSION_DENIED naming `path`, INVALID_ARGUMENT if it is not a regular file.
  static absl::StatusOr<MappedFile> Open(const std::string& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept { *this = std::move(other); }
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~MappedFile();

  absl::Span<const std::byte> bytes() const { return {data_, size_}; }
  // Asks the kernel for huge pages, which save TLB misses. It grants them if the file system
  // supports large folios and the page cache holds the file in such.
  void AskForHugePages() const;
  // Says that `part` of a mapped file is not wanted soon: its whole pages leave this process's
  // memory, and come back from the file when they are read.
  static void Forget(absl::Span<const std::byte> part);

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// The whole of a text file. Errors as MappedFile::Open.
absl::StatusOr<std::string> ReadFile(const std::string& path);

}  // namespace tandem

#endif  // TANDEM_BASE_MAPPED_FILE_H_
