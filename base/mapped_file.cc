#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"

namespace tandem {

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  // O_NONBLOCK: opening a pipe must not wait for its writer.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return absl::ErrnoToStatus(errno, path);
  const absl::Cleanup close_fd = [fd] { close(fd); };
  struct stat info;
  if (fstat(fd, &info) != 0) return absl::ErrnoToStatus(errno, path);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  }
  MappedFile file;
  if (info.st_size == 0) return file;  // mmap refuses empty mappings
  void* data = mmap(nullptr, info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (data == MAP_FAILED) return absl::ErrnoToStatus(errno, absl::StrCat(path, ": mmap"));
  file.data_ = static_cast<const std::byte*>(data);
  file.size_ = info.st_size;
  const absl::string_view text(static_cast<const char*>(data), file.size_);
  if (absl::StartsWith(text, "version https://git-lfs.github.com/spec/")) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": is a Git LFS pointer, not the file itself; run git lfs pull"));
  }
  return file;
}

void MappedFile::AskForHugePages() const {
  if (data_ != nullptr) madvise(const_cast<std::byte*>(data_), size_, MADV_HUGEPAGE);
}

void MappedFile::Forget(absl::Span<const std::byte> part) {
  const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = reinterpret_cast<uintptr_t>(part.data());
  const uintptr_t first = (begin + page - 1) / page * page;
  const uintptr_t end = (begin + part.size()) / page * page;
  if (first < end) madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
}

absl::StatusOr<std::string> ReadFile(const std::string& path, size_t max_bytes) {
  ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  if (file.bytes().size() > max_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": found ", file.bytes().size(),
                                                   " bytes, allowed: at most ", max_bytes));
  }
  return std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
}

}  // namespace tandem
