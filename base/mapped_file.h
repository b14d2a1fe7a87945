#ifndef TANDEM_BASE_MAPPED_FILE_H_
#define TANDEM_BASE_MAPPED_FILE_H_

#include <cstddef>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace tandem {

// Appended to errors about a file that is shorter than its header says, for example after an
// interrupted copy or download.
inline constexpr char kCutOff[] = "; the file seems to be cut off";

// A file's bytes, mapped read-only. Move-only. The bytes stay valid, at the same address, until the
// object that holds the mapping is destroyed. REQUIRES: the file is not truncated before that.
class MappedFile {
 public:
  // Maps a file. NOT_FOUND or PERMISSION_DENIED, naming `path`; INVALID_ARGUMENT if it is not a
  // regular file, or is the pointer that Git LFS leaves in place of a file.
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
  // Asks the kernel for huge pages, which save TLB misses. It uses them if the file system supports
  // large folios and the page cache holds the file in large folios.
  void AskForHugePages() const;
  // Releases the memory of `part` of a mapped file: the pages that lie completely in it are dropped
  // and read from the file again on the next access.
  static void Forget(absl::Span<const std::byte> part);

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Reads a whole file of at most `max_bytes`, by default a gibibyte. Errors: those of
// MappedFile::Open, and INVALID_ARGUMENT if the file is larger.
absl::StatusOr<std::string> ReadFile(const std::string& path, size_t max_bytes = size_t{1} << 30);

}  // namespace tandem

#endif  // TANDEM_BASE_MAPPED_FILE_H_
