#include "base/output_folder.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "base/format.h"
#include "base/status_macros.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr char kReaderGone[] = "tandem.dev/reader_gone";  // a payload

absl::Status Failed(absl::string_view path, absl::string_view what, int error) {
  const std::string message = absl::StrCat(path, ": ", what, ": ", std::strerror(error));
  if (error == ENOSPC || error == EDQUOT) return absl::ResourceExhaustedError(message);
  if (error == EEXIST) return absl::AlreadyExistsError(message);
  if (error == EACCES || error == EPERM || error == EROFS) {
    return absl::PermissionDeniedError(message);
  }
  absl::Status status = absl::UnavailableError(message);
  if (error == EPIPE) status.SetPayload(kReaderGone, absl::Cord());
  return status;
}

}  // namespace

absl::Status WriteAll(int descriptor, absl::string_view bytes, absl::string_view name) {
  while (!bytes.empty()) {
    const ssize_t written = write(descriptor, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(written);
    } else if (errno == EAGAIN) {  // a pipe that another process made non-blocking
      pollfd writable{.fd = descriptor, .events = POLLOUT, .revents = 0};
      poll(&writable, 1, /*timeout=*/-1);
    } else if (errno != EINTR) {
      return Failed(name, "cannot write", errno);
    }
  }
  return absl::OkStatus();
}

bool IsReaderGone(const absl::Status& status) { return status.GetPayload(kReaderGone).has_value(); }

bool MarkInUse(int descriptor, const std::string& path) {
  struct stat open_one = {};
  struct stat found = {};
  // On a file system without locks RemoveIfUnused never removes anything, so ignore other errors.
  if (flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return false;
  return fstat(descriptor, &open_one) == 0 && stat(path.c_str(), &found) == 0 &&
         open_one.st_ino == found.st_ino && open_one.st_dev == found.st_dev;
}

void RemoveIfUnused(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (descriptor < 0) return;
  std::error_code ignored;
  if (flock(descriptor, LOCK_EX | LOCK_NB) == 0) fs::remove_all(path, ignored);
  close(descriptor);
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

absl::Status OutputFile::Write(absl::string_view bytes) {
  return WriteAll(descriptor_, bytes, path_);
}

absl::Status OutputFile::Seek(int64_t offset) {
  if (lseek(descriptor_, offset, SEEK_SET) != offset) return Failed(path_, "cannot seek", errno);
  return absl::OkStatus();
}

absl::Status OutputFile::Sync() {
  if (fsync(descriptor_) != 0) return Failed(path_, "cannot write", errno);
  return absl::OkStatus();
}

absl::Status OutputFile::Sync(int64_t offset, int64_t bytes) {
  constexpr unsigned kAll =
      SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  if (sync_file_range(descriptor_, offset, bytes, kAll) != 0 && errno != ENOSYS) {
    return Failed(path_, "cannot write", errno);
  }
  return absl::OkStatus();
}

// Calls the kernel directly, because the thread sanitizer takes mmap's wrapper for a write to the
// memory, which other threads read meanwhile.
void OutputFile::MapOver(int64_t offset, absl::Span<std::byte> memory) const {
  const long mapped = syscall(SYS_mmap, memory.data(), memory.size(), PROT_READ,
                              MAP_SHARED | MAP_FIXED, descriptor_, offset);
  if (mapped == -1) return;
  // For speed alone: huge pages, and no page faults in the threads that read.
  madvise(memory.data(), memory.size(), MADV_HUGEPAGE);
  madvise(memory.data(), memory.size(), MADV_POPULATE_READ);
}

absl::Status OutputFile::Close() {
  if (close(std::exchange(descriptor_, -1)) != 0) return Failed(path_, "cannot write", errno);
  return absl::OkStatus();
}

absl::StatusOr<OutputFolder> OutputFolder::Create(const std::string& path) {
  std::error_code error;
  const bool exists = fs::exists(path, error);
  if (exists) {
    if (!fs::is_directory(path, error)) {
      return absl::AlreadyExistsError(absl::StrCat(path, ": is a file, not a folder"));
    }
    const bool is_empty = fs::is_empty(path, error);
    if (error) return Failed(path, "cannot read the folder", error.value());
    if (!is_empty) {
      return absl::AlreadyExistsError(
          absl::StrCat(path, ": the folder is not empty; existing files are not overwritten"));
    }
    return OutputFolder(path, /*is_ours=*/false);
  }
  fs::create_directories(path, error);
  if (error) return Failed(path, "cannot create the folder", error.value());
  return OutputFolder(path, /*is_ours=*/true);
}

absl::StatusOr<OutputFolder> OutputFolder::Around(const std::string& file) {
  const fs::path folder = fs::absolute(file).parent_path();
  std::error_code error;
  if (fs::is_directory(folder, error)) return OutputFolder(folder.string(), /*is_ours=*/false);
  return absl::NotFoundError(absl::StrCat(folder.string(), ": no such folder"));
}

OutputFolder::~OutputFolder() {
  std::error_code ignored;
  for (const std::string& file : files_) fs::remove(file, ignored);
  if (is_ours_) fs::remove(path_, ignored);  // only succeeds if it is empty
}

absl::Status OutputFolder::CheckFreeSpace(int64_t bytes) const {
  std::error_code error;
  const fs::space_info space = fs::space(path_, error);
  if (error) return Failed(path_, "cannot read the free space", error.value());
  if (space.available >= static_cast<uintmax_t>(bytes)) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(path_, ": the disk has ", space.available,
                                                   " bytes free, and ", bytes, " are needed"));
}

absl::StatusOr<OutputFile> OutputFolder::NewFile(const std::string& name) {
  const std::string path = (fs::path(path_) / name).string();
  const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor < 0) return Failed(path, "cannot create the file", errno);
  files_.push_back(path);
  return OutputFile(path, descriptor);
}

absl::StatusOr<OutputFile> OutputFolder::NewPart(const std::string& name) {
  constexpr int kMaxAttempts = 100;
  for (int attempt = 0; attempt < kMaxAttempts; ++attempt) {
    uint32_t number = 0;
    if (getentropy(&number, sizeof(number)) != 0) return Failed(path_, "cannot name a file", errno);
    absl::StatusOr<OutputFile> file = NewFile(Format("%s.%06x.part", name, number & 0xffffff));
    if (absl::IsAlreadyExists(file.status())) continue;
    if (!file.ok() || MarkInUse(file->descriptor_, file->path_)) return file;
  }
  return absl::UnavailableError(absl::StrCat(path_, ": cannot create a partial file of ", name));
}

absl::Status ReplaceFile(const std::string& path, absl::string_view text) {
  ASSIGN_OR_RETURN(OutputFolder folder, OutputFolder::Around(path));
  ASSIGN_OR_RETURN(OutputFile part, folder.NewPart(fs::path(path).filename().string()));
  RETURN_IF_ERROR(part.Write(text));
  RETURN_IF_ERROR(part.Close());
  std::error_code error;
  fs::rename(part.path(), path, error);
  if (error) return Failed(path, "cannot replace the file", error.value());
  folder.Keep();
  return absl::OkStatus();
}

void OutputFolder::Keep() {
  files_.clear();
  is_ours_ = false;
}

}  // namespace tandem
