#include "tools/hub/hub_download.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "proof/remote/remote_engine.h"
#include "tools/interrupt_flag.h"
#include "tools/status_line.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxParts = 4;
constexpr int kMaxRestarts = 3;  // of a file that can only come whole

// Its own name, because the parts of the file are not filled in order, as Python's are.
std::string PartialPath(const std::string& blob) {
  return absl::StrCat(blob, ".tandem.incomplete");
}

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) = delete;
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  int number() const { return number_; }

 private:
  int number_;
};

absl::StatusOr<Descriptor> OpenFile(const std::string& path) {
  Descriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (file.number() < 0) return absl::ErrnoToStatus(errno, path);
  return file;
}

// Waits for other processes that hold the lock.
absl::StatusOr<Descriptor> Lock(const HubDownload& download) {
  std::error_code error;
  fs::create_directories(fs::path(download.lock).parent_path(), error);
  if (error) return absl::ErrnoToStatus(error.value(), download.lock);
  ASSIGN_OR_RETURN(Descriptor file, OpenFile(download.lock));
  const WaitingLine line(absl::StrCat("waiting for another process to fetch ", download.file.name));
  while (flock(file.number(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return absl::ErrnoToStatus(errno, download.lock);
    if (InterruptFlag::is_set()) return Interrupted();
    absl::SleepFor(absl::Milliseconds(50));
  }
  return file;
}

// A file on its way: its bytes, and after them a record of which are there. Each part may be
// written by a thread of its own.
class PartialFile {
 public:
  static absl::StatusOr<std::unique_ptr<PartialFile>> Open(const std::string& path, int64_t bytes,
                                                           int num_parts,
                                                           std::atomic<int64_t>* received) {
    ASSIGN_OR_RETURN(Descriptor descriptor, OpenFile(path));
    std::unique_ptr<PartialFile> file(
        new PartialFile(path, std::move(descriptor), bytes, received));
    if (!file->ReadRecord()) {
      RETURN_IF_ERROR(file->Restart(num_parts));
    }
    for (int part = 0; part < file->num_parts(); ++part) *received += file->record_.done[part];
    return file;
  }

  int num_parts() const { return static_cast<int>(record_.num_parts); }
  int64_t begin(int part) const { return bytes_ * part / num_parts(); }
  int64_t end(int part) const { return begin(part + 1); }
  int64_t next(int part) const { return begin(part) + record_.done[part]; }

  // Forgets all bytes.
  absl::Status Restart(int num_parts) {
    for (int part = 0; part < kMaxParts; ++part) *received_ -= record_.done[part];
    record_ = {.num_parts = num_parts, .done = {}};
    // Bytes that are cut off and added again read as zeros, so none is recorded as done.
    for (const int64_t length : {int64_t{0}, bytes_ + int64_t{sizeof(Record)}}) {
      if (ftruncate(descriptor_.number(), length) != 0) return Failed();
    }
    return WriteAt(bytes_, &record_.num_parts, sizeof(record_.num_parts));
  }

  // Writes the next bytes of a part. DATA_LOSS beyond its end.
  absl::Status Append(int part, absl::string_view bytes) {
    const auto size = static_cast<int64_t>(bytes.size());
    if (next(part) + size > end(part)) return absl::DataLossError("it is longer");
    RETURN_IF_ERROR(WriteAt(next(part), bytes.data(), bytes.size()));
    int64_t& done = record_.done[part];
    done += size;
    *received_ += size;
    return WriteAt(bytes_ + int64_t{offsetof(Record, done)} + part * int64_t{sizeof(done)}, &done,
                   sizeof(done));
  }

  // The hash of the bytes, in hexadecimal: SHA-256, or git's SHA-1 for a blob.
  absl::StatusOr<std::string> Hash(bool is_sha256) const {
    const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context(EVP_MD_CTX_new(),
                                                                     EVP_MD_CTX_free);
    TANDEM_CHECK(EVP_DigestInit_ex(context.get(), is_sha256 ? EVP_sha256() : EVP_sha1(), nullptr));
    const std::string head = is_sha256 ? "" : absl::StrCat("blob ", bytes_, std::string(1, '\0'));
    EVP_DigestUpdate(context.get(), head.data(), head.size());
    std::vector<char> buffer(1 << 20);
    for (int64_t at = 0; at < bytes_;) {
      const auto most = std::min<int64_t>(bytes_ - at, static_cast<int64_t>(buffer.size()));
      const ssize_t size = pread(descriptor_.number(), buffer.data(), most, at);
      if (size <= 0) return Failed();
      EVP_DigestUpdate(context.get(), buffer.data(), size);
      at += size;
      if (InterruptFlag::is_set()) return Interrupted();
    }
    std::string digest(EVP_MAX_MD_SIZE, '\0');
    unsigned int size = 0;
    EVP_DigestFinal_ex(context.get(), reinterpret_cast<unsigned char*>(digest.data()), &size);
    return absl::BytesToHexString(absl::string_view(digest).substr(0, size));
  }

  // Makes it the file `path`.
  absl::Status MoveTo(const std::string& path) {
    if (ftruncate(descriptor_.number(), bytes_) != 0) return Failed();
    if (fdatasync(descriptor_.number()) != 0) return Failed();
    return rename(path_.c_str(), path.c_str()) == 0 ? absl::OkStatus() : Failed();
  }
  void Remove() { unlink(path_.c_str()); }

 private:
  struct Record {
    int64_t num_parts = 0;
    std::array<int64_t, kMaxParts> done = {};
  };

  PartialFile(std::string path, Descriptor descriptor, int64_t bytes,
              std::atomic<int64_t>* received)
      : path_(std::move(path)),
        descriptor_(std::move(descriptor)),
        bytes_(bytes),
        received_(received) {}

  // Returns whether the file has a record that is possible.
  bool ReadRecord() {
    struct stat info = {};
    Record found;
    const bool is_whole =
        fstat(descriptor_.number(), &info) == 0 &&
        info.st_size == bytes_ + int64_t{sizeof(found)} &&
        pread(descriptor_.number(), &found, sizeof(found), bytes_) == ssize_t{sizeof(found)};
    if (!is_whole || found.num_parts < 1 || found.num_parts > kMaxParts) return false;
    record_.num_parts = found.num_parts;
    for (int part = 0; part < num_parts(); ++part) {
      const int64_t done = found.done[part];
      if (done < 0 || done > end(part) - begin(part)) return false;
    }
    record_ = found;
    return true;
  }

  absl::Status WriteAt(int64_t at, const void* data, size_t size) {
    const char* bytes = static_cast<const char*>(data);
    while (size > 0) {
      const ssize_t written = pwrite(descriptor_.number(), bytes, size, at);
      if (written < 0 && errno != EINTR) return Failed();
      const ssize_t step = std::max<ssize_t>(written, 0);
      bytes += step;
      at += step;
      size -= step;
    }
    return absl::OkStatus();
  }
  absl::Status Failed() const { return absl::ErrnoToStatus(errno, path_); }

  const std::string path_;
  const Descriptor descriptor_;
  const int64_t bytes_;
  std::atomic<int64_t>* const received_;
  Record record_;
};

// Brings the rest of a part. OUT_OF_RANGE if the server sends the file from its beginning.
absl::Status DownloadPart(const HubClient& client, const HubDownload& download, int part,
                          const std::atomic<bool>& is_over, PartialFile* file) {
  HttpTransfer transfer;
  const auto error = [&](absl::StatusCode code, absl::string_view why) {
    return absl::Status(
        code, absl::StrCat(download.name.repository, ": ", download.file.name, ": ", why));
  };
  return client.WithRetries([&]() -> HubReply {
    const int64_t begin = file->next(part);
    if (begin == file->end(part)) return {};
    OutgoingRequest request = {
        .url = HubClient::PathOf(download.name, download.commit, download.file.name)};
    const bool is_range = begin > 0 || file->num_parts() > 1;
    if (is_range) {
      request.headers = {absl::StrCat("Range: bytes=", begin, "-", file->end(part) - 1)};
    }
    absl::Status status;
    request.on_body = [&](const HttpAnswer& head, absl::string_view bytes) {
      status = is_range && head.status != 206
                   ? error(absl::StatusCode::kOutOfRange, "the server cannot continue a file")
                   : file->Append(part, bytes);
      return status.ok();
    };
    request.is_cancelled = [&] { return is_over.load(); };
    HubReply reply = client.Get(download.name, std::move(request), &transfer);
    reply.has_progressed = file->next(part) > begin;
    if (absl::IsDataLoss(status) || reply.answer.status == 416) {
      reply.status = error(absl::StatusCode::kDataLoss,
                           absl::StrCat("it has another size than ", download.file.bytes,
                                        " bytes, which ", client.Host(), " names"));
    } else if (!status.ok()) {
      reply.status = status;
    } else if (reply.status.ok() && file->next(part) < file->end(part)) {
      reply.status = error(absl::StatusCode::kUnavailable,
                           absl::StrCat("the connection was closed ",
                                        file->end(part) - file->next(part), " bytes too early"));
    }
    return reply;
  });
}

absl::Status DownloadParts(const HubClient& client, const HubDownload& download,
                           PartialFile* file) {
  std::atomic<bool> is_over = false;
  absl::Mutex mutex;
  absl::Status first;
  ForAll(file->num_parts(), kMaxParts, [&](size_t part) {
    const absl::Status status =
        DownloadPart(client, download, static_cast<int>(part), is_over, file);
    if (status.ok()) return;
    const absl::MutexLock lock(&mutex);
    is_over = true;
    first.Update(status);
  });
  return first;
}

bool IsThere(const HubDownload& download) {
  std::error_code error;
  return fs::file_size(download.blob, error) == static_cast<uintmax_t>(download.file.bytes) &&
         !error;
}

}  // namespace

int64_t PartialBytes(const std::string& blob) {
  struct stat info = {};
  return stat(PartialPath(blob).c_str(), &info) == 0 ? int64_t{info.st_blocks} * 512 : 0;
}

absl::Status DownloadFile(const HubClient& client, const HubDownload& download,
                          std::atomic<int64_t>* received) {
  ASSIGN_OR_RETURN(const Descriptor lock, Lock(download));
  const HubFile& expected = download.file;
  if (IsThere(download)) {  // another process has brought it
    *received += expected.bytes;
    return absl::OkStatus();
  }
  const bool is_large = expected.bytes > client.options().max_single_bytes;
  ASSIGN_OR_RETURN(const std::unique_ptr<PartialFile> file,
                   PartialFile::Open(PartialPath(download.blob), expected.bytes,
                                     is_large ? kMaxParts : 1, received));
  absl::Status status = DownloadParts(client, download, file.get());
  for (int i = 0; absl::IsOutOfRange(status) && i < kMaxRestarts; ++i) {
    RETURN_IF_ERROR(file->Restart(1));
    status = DownloadParts(client, download, file.get());
  }
  RETURN_IF_ERROR(status);
  ASSIGN_OR_RETURN(const std::string hash, file->Hash(expected.hash.size() == 64));
  if (hash == expected.hash) return file->MoveTo(download.blob);
  file->Remove();
  return absl::DataLossError(absl::StrCat(download.name.repository, ": ", expected.name,
                                          ": hash: found ", hash, ", allowed: ", expected.hash));
}

}  // namespace tandem
