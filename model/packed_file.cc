#include "model/packed_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <functional>
#include <system_error>
#include <tuple>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/format.h"
#include "base/log.h"
#include "base/process_limits.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "base/thread_pool.h"
#include "model/checkpoint/safetensors.h"
#include "model/packed_cache.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr size_t kFirstBytes = size_t{16} << 10;  // of each file, as a part of its identity
constexpr char kIdentity[] = "identity";          // entry name
constexpr char kChecksums[] = "checksums";        // entry name
constexpr size_t kEntryBytes = 512;               // maximum size of an entry in the header
constexpr size_t kBlockBytes = size_t{1} << 20;   // bytes per checksum

constexpr size_t kChunkBytes = size_t{4} << 20;  // written and mapped at once
constexpr absl::Duration kWriteDelay = absl::Milliseconds(500);
constexpr char kLock[] = ".lock";  // appended to the path of the packed file

size_t NumBlocks(size_t bytes) { return (bytes + kBlockBytes - 1) / kBlockBytes; }

// Lets nearly all other work run before this thread, but does not starve it, because other
// processes may wait for the file.
void LowerPriority() {
  constexpr int kNice = 10;
  constexpr int kThisThread = 1;
  constexpr int kIdleClass = 3 << 13;  // IOPRIO_CLASS_IDLE (linux/ioprio.h)
  std::ignore = nice(kNice);
  syscall(SYS_ioprio_set, kThisThread, 0, kIdleClass);
}

absl::Span<const std::byte> AsBytes(absl::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

// Each step is a bijection of the lane and of the word, so a change of one word always changes the
// result.
uint64_t Mixed(uint64_t lane, uint64_t word) {
  lane = (lane ^ word) * 0x9E3779B97F4A7C15;  // 2^64 over the golden ratio, odd
  return lane ^ (lane >> 32);
}

// Hashes eight words at a time in separate lanes: 6 GB/s on a core of a Xeon, where std::hash of
// strings reaches 2.
// REQUIRES: a multiple of kPackedAlignment bytes.
uint64_t ChecksumOf(absl::Span<const std::byte> bytes) {
  constexpr size_t kLanes = kPackedAlignment / sizeof(uint64_t);
  std::array<uint64_t, kLanes> lanes = {1, 2, 3, 4, 5, 6, 7, 8};
  for (size_t at = 0; at < bytes.size(); at += kPackedAlignment) {
    std::array<uint64_t, kLanes> words;
    std::memcpy(words.data(), bytes.data() + at, kPackedAlignment);
    for (size_t i = 0; i < kLanes; ++i) lanes[i] = Mixed(lanes[i], words[i]);
  }
  return absl::c_accumulate(lanes, uint64_t{bytes.size()}, Mixed);
}

// Returns the checksums of blocks, [blocks of kBlockBytes], computed on all usable cores.
std::vector<uint64_t> ChecksumsOf(absl::Span<const std::byte> bytes) {
  std::vector<uint64_t> checksums(NumBlocks(bytes.size()));
  const auto num_blocks = static_cast<int64_t>(checksums.size());
  ThreadPool threads(static_cast<int>(std::clamp<int64_t>(num_blocks, 1, NumUsableCores())));
  threads.Run([&](int thread) {
    const Share share = ShareOf(num_blocks, threads.num_threads(), thread);
    for (int64_t i = share.begin; i < share.end; ++i) {
      checksums[i] = ChecksumOf(bytes.subspan(i * kBlockBytes, kBlockBytes));
    }
  });
  return checksums;
}

}  // namespace

absl::StatusOr<PackedSource> PackedSource::Of(absl::Span<const std::string> files,
                                              absl::string_view how, const std::string& folder) {
  PackedSource source;
  std::string name = absl::StrCat(how, "\n");
  std::string first_bytes;
  fs::path first;
  source.identity = absl::StrCat("version ", kPackedVersion, "\n", how, "\n");
  for (const std::string& path : files) {
    std::error_code error;
    const fs::path canonical = fs::canonical(path, error);
    struct stat info = {};
    if (error || stat(path.c_str(), &info) != 0) {
      return absl::ErrnoToStatus(error ? error.value() : errno, path);
    }
    ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
    if (first.empty()) first = canonical;
    absl::StrAppend(&name, canonical.string(), "\n");
    absl::StrAppend(&source.identity, canonical.string(), " ", file.bytes().size(), " ",
                    int64_t{info.st_mtim.tv_sec}, " ", int64_t{info.st_mtim.tv_nsec}, "\n");
    absl::StrAppend(&first_bytes,
                    View(file.bytes().first(std::min(kFirstBytes, file.bytes().size()))));
    source.bytes += static_cast<int64_t>(file.bytes().size());
  }
  source.identity += first_bytes;
  source.path =
      (fs::path(folder) / Format("%s-%s-%016x.safetensors", first.parent_path().filename().string(),
                                 first.stem().string(), std::hash<std::string>()(name)))
          .string();
  return source;
}

absl::StatusOr<PackedFile> PackedFile::Open(const PackedSource& source) {
  PackedFile packed;
  packed.path_ = source.path;
  ASSIGN_OR_RETURN(packed.file_, MappedFile::Open(source.path));
  packed.file_.AskForHugePages();
  ASSIGN_OR_RETURN(const std::vector<SafetensorsEntry> entries,
                   ParseSafetensors(packed.file_.bytes(), source.path));
  for (const SafetensorsEntry& entry : entries) packed.entries_[entry.name] = entry.bytes;
  ASSIGN_OR_RETURN(const absl::Span<const std::byte> identity, packed.Find(kIdentity));
  std::string wanted = source.identity;
  wanted.resize(PackedFileWriter::PaddedSize(wanted.size()));
  if (View(identity) != wanted) {
    return absl::FailedPreconditionError(
        absl::StrCat(source.path, ": the model's files have changed since it was packed"));
  }
  RETURN_IF_ERROR(packed.CheckBytes());
  MarkPackedUsed(source.path);
  return packed;
}

absl::Status PackedFile::CheckBytes() const {
  ASSIGN_OR_RETURN(const absl::Span<const std::byte> kept, Find(kChecksums));
  const std::vector<uint64_t> found =
      ChecksumsOf(file_.bytes().first(kept.data() - file_.bytes().data()));
  const absl::string_view wanted = View(kept);
  if (kept.size() != PackedFileWriter::PaddedSize(found.size() * sizeof(uint64_t))) {
    return absl::DataLossError(absl::StrCat(path_, ": has ", kept.size(),
                                            " bytes of checksums for ", found.size(), " blocks"));
  }
  for (size_t i = 0; i < found.size(); ++i) {
    uint64_t checksum = 0;
    std::memcpy(&checksum, wanted.data() + i * sizeof(checksum), sizeof(checksum));
    if (checksum == found[i]) continue;
    return absl::DataLossError(
        absl::StrCat(path_, ": the bytes from ", i * kBlockBytes, " on are damaged"));
  }
  return absl::OkStatus();
}

absl::StatusOr<absl::Span<const std::byte>> PackedFile::Find(absl::string_view name) const {
  const auto found = entries_.find(name);
  const bool is_there = found != entries_.end() &&
                        reinterpret_cast<uintptr_t>(found->second.data()) % kPackedAlignment == 0;
  if (is_there) return found->second;
  return absl::FailedPreconditionError(absl::StrCat(path_, ": has no \"", name, "\""));
}

bool IsUnfinishedPackedName(absl::string_view name) {
  constexpr size_t kHashDigits = 16;
  absl::string_view number;
  if (absl::ConsumeSuffix(&name, ".part")) {
    const size_t dot = name.rfind('.');
    if (dot == absl::string_view::npos) return false;
    number = name.substr(dot + 1);
    name = name.substr(0, dot);
  } else if (!absl::ConsumeSuffix(&name, kLock)) {
    return false;
  }
  if (!absl::ConsumeSuffix(&name, ".safetensors") || name.size() <= kHashDigits) return false;
  const absl::string_view hash = name.substr(name.size() - kHashDigits);
  return name[name.size() - kHashDigits - 1] == '-' && absl::c_all_of(hash, absl::ascii_isxdigit) &&
         absl::c_all_of(number, absl::ascii_isxdigit);
}

void RemoveUnfinishedPackedFiles(const std::string& folder) {
  std::error_code error;
  for (fs::directory_iterator file(folder, error), end; !error && file != end;
       file.increment(error)) {
    if (IsUnfinishedPackedName(file->path().filename().string()))
      RemoveIfUnused(file->path().string());
  }
}

absl::StatusOr<PackingTurn> PackingTurn::Take(const PackedSource& source, absl::Duration patience) {
  constexpr absl::Duration kPause = absl::Milliseconds(20);
  const std::string path = absl::StrCat(source.path, kLock);
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  if (error) return absl::ErrnoToStatus(error.value(), source.path);
  std::optional<timespec> last;
  absl::Duration without_progress;
  while (true) {
    const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (descriptor < 0) return absl::ErrnoToStatus(errno, path);
    if (MarkInUse(descriptor, path)) return PackingTurn(path, descriptor);
    struct stat info = {};
    fstat(descriptor, &info);
    close(descriptor);
    if (!last.has_value()) {
      Log(LogLevel::kInfo,
          absl::StrCat("waiting for another process that packs the same weights: ", source.path));
    }
    const bool has_progress = !last.has_value() || last->tv_sec != info.st_mtim.tv_sec ||
                              last->tv_nsec != info.st_mtim.tv_nsec;
    without_progress = has_progress ? absl::ZeroDuration() : without_progress + kPause;
    last = info.st_mtim;
    if (without_progress > patience) {
      return absl::UnavailableError(
          absl::StrCat(path, ": the process that packs the weights makes no progress"));
    }
    absl::SleepFor(kPause);
  }
}

PackingTurn::~PackingTurn() {
  if (descriptor_ < 0) return;
  std::error_code ignored;
  fs::remove(path_, ignored);
  close(descriptor_);
}

void PackingTurn::ReportProgress() const { futimens(descriptor_, nullptr); }

absl::StatusOr<std::unique_ptr<PackedFileWriter>> PackedFileWriter::Create(
    const PackedSource& source, int max_entries, size_t max_bytes, PackingTurn turn,
    Backend* backend) {
  TANDEM_CHECK(backend->memory_is_host());
  ASSIGN_OR_RETURN(OutputFolder folder, OutputFolder::Around(source.path));
  RETURN_IF_ERROR(folder.CheckFreeSpace(2 * source.bytes));
  ASSIGN_OR_RETURN(OutputFile file, folder.NewPart(fs::path(source.path).filename().string()));
  std::unique_ptr<PackedFileWriter> writer(new PackedFileWriter(
      source, max_entries, std::move(folder), std::move(file), std::move(turn)));
  writer->capacity_ = writer->size_ + PaddedSize(source.identity.size()) + max_bytes;
  RETURN_IF_ERROR(CheckPackedSize(source.path, static_cast<int64_t>(writer->capacity_),
                                  source.max_folder_bytes));
  // From here on buffers are aligned to huge pages. Files that are mapped in their place are, too.
  constexpr size_t kLeastBytes = size_t{2} << 20;
  ASSIGN_OR_RETURN(writer->image_, backend->Allocate(std::max(writer->capacity_, kLeastBytes)));
  TANDEM_CHECK(reinterpret_cast<uintptr_t>(writer->image_.data()) % kLeastBytes == 0);
  const std::optional<int64_t> memory = AvailableMemoryBytes();
  writer->writes_at_once_ =
      memory.has_value() &&
      *memory < static_cast<int64_t>(writer->capacity_ + writer->capacity_ / 4);
  RETURN_IF_ERROR(writer->Add(kIdentity, AsBytes(source.identity)));
  return writer;
}

PackedFileWriter::PackedFileWriter(const PackedSource& source, int max_entries, OutputFolder folder,
                                   OutputFile file, PackingTurn turn)
    : source_(source),
      header_bytes_(PaddedSize(kEntryBytes * (max_entries + 3))),
      size_(header_bytes_),
      turn_(std::move(turn)),
      folder_(std::move(folder)),
      file_(std::move(file)),
      written_(kChunkBytes) {}

PackedFileWriter::~PackedFileWriter() { Stop(); }

size_t PackedFileWriter::PaddedSize(size_t bytes) {
  return (bytes + kPackedAlignment - 1) / kPackedAlignment * kPackedAlignment;
}

absl::Span<std::byte> PackedFileWriter::Image(size_t begin, size_t end) const {
  return {static_cast<std::byte*>(image_.data()) + begin, end - begin};
}

absl::StatusOr<absl::Span<std::byte>> PackedFileWriter::Add(absl::string_view name, size_t bytes) {
  turn_->ReportProgress();
  if (writes_at_once_) RETURN_IF_ERROR(WriteWholeChunks(size_));
  const size_t padded = PaddedSize(bytes);
  TANDEM_CHECK(size_ + padded <= capacity_);
  entries_.push_back({.name = std::string(name),
                      .dtype = "U8",
                      .shape = {static_cast<int64_t>(padded)},
                      .bytes = static_cast<int64_t>(padded)});
  const absl::Span<std::byte> entry = Image(size_, size_ + bytes);
  std::memset(entry.data() + bytes, 0, padded - bytes);
  size_ += padded;
  return entry;
}

absl::Status PackedFileWriter::Add(absl::string_view name, absl::Span<const std::byte> bytes) {
  ASSIGN_OR_RETURN(const absl::Span<std::byte> entry, Add(name, bytes.size()));
  absl::c_copy(bytes, entry.begin());
  return absl::OkStatus();
}

void PackedFileWriter::WriteInBackground() { RunThread(/*has_low_priority=*/true); }

absl::Status PackedFileWriter::Await() {
  const absl::MutexLock lock(&await_mutex_);
  Stop();
  if (file_.has_value()) RunThread(/*has_low_priority=*/false);
  if (thread_.joinable()) thread_.join();
  return status_;
}

bool PackedFileWriter::stops() const {
  absl::MutexLock lock(&stop_mutex_);
  return stops_;
}

void PackedFileWriter::SetStops(bool stops) {
  absl::MutexLock lock(&stop_mutex_);
  stops_ = stops;
}

void PackedFileWriter::Stop() {
  SetStops(true);
  if (thread_.joinable()) thread_.join();
}

// Writes on a thread of its own, because a thread cannot raise its priority again, and because a
// file that becomes larger than allowed must not end the process by SIGXFSZ.
void PackedFileWriter::RunThread(bool has_low_priority) {
  SetStops(false);
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  const absl::Cleanup unblock = [&] { pthread_sigmask(SIG_SETMASK, &before, nullptr); };
  try {
    thread_ = std::thread([this, has_low_priority] {
      if (has_low_priority) {
        LowerPriority();
        // Leave the machine to the first tokens.
        absl::MutexLock lock(&stop_mutex_);
        stop_mutex_.AwaitWithTimeout(absl::Condition(&stops_), kWriteDelay);
      }
      const absl::Status status = WriteAll();
      if (absl::IsCancelled(status)) return;
      status_ = status;
      if (!status_.ok()) {
        Log(LogLevel::kWarning, absl::StrCat("packed weights are not cached: ", status_.message()));
      }
      file_.reset();
      folder_.reset();  // removes the file unless it is complete
      turn_.reset();
    });
  } catch (const std::system_error& error) {
    status_ = absl::UnavailableError(error.what());
  }
}

// Returns CANCELLED if it was stopped before.
absl::Status PackedFileWriter::WriteAll() {
  RETURN_IF_ERROR(WriteWholeChunks(size_));
  if (stops()) return absl::CancelledError();
  if (written_ < size_) RETURN_IF_ERROR(WriteChunk(written_, size_));
  return Finish();
}

absl::Status PackedFileWriter::WriteWholeChunks(size_t end) {
  for (; written_ + kChunkBytes <= end && !stops(); written_ += kChunkBytes) {
    RETURN_IF_ERROR(WriteChunk(written_, written_ + kChunkBytes));
  }
  return absl::OkStatus();
}

absl::Status PackedFileWriter::WriteChunk(size_t begin, size_t end) {
  checksums_.resize(std::max(checksums_.size(), NumBlocks(end)));
  const absl::Span<std::byte> bytes = Image(begin, end);
  for (size_t at = 0; at < bytes.size(); at += kBlockBytes) {
    checksums_[(begin + at) / kBlockBytes] = ChecksumOf(bytes.subspan(at, kBlockBytes));
  }
  const auto offset = static_cast<int64_t>(begin);
  RETURN_IF_ERROR(file_->Seek(offset));
  RETURN_IF_ERROR(file_->Write(View(bytes)));
  RETURN_IF_ERROR(file_->Sync(offset, static_cast<int64_t>(bytes.size())));
  turn_->ReportProgress();
  // Only whole chunks, which end with a page.
  if (bytes.size() == kChunkBytes) file_->MapOver(offset, bytes);
  return absl::OkStatus();
}

absl::Status PackedFileWriter::Finish() {
  const size_t num_blocks = NumBlocks(size_);
  const size_t size = PaddedSize(num_blocks * sizeof(uint64_t));
  entries_.push_back({.name = kChecksums,
                      .dtype = "U8",
                      .shape = {static_cast<int64_t>(size)},
                      .bytes = static_cast<int64_t>(size)});
  const std::string header = SafetensorsHeader(entries_, header_bytes_);
  TANDEM_CHECK(header.size() == header_bytes_);
  absl::c_copy(AsBytes(header), Image(0, header_bytes_).begin());
  RETURN_IF_ERROR(WriteChunk(0, std::min(size_, kChunkBytes)));
  checksums_.resize(size / sizeof(uint64_t));
  RETURN_IF_ERROR(file_->Seek(static_cast<int64_t>(size_)));
  RETURN_IF_ERROR(file_->Write({reinterpret_cast<const char*>(checksums_.data()), size}));
  RETURN_IF_ERROR(file_->Sync());
  std::error_code error;
  fs::rename(file_->path(), source_.path, error);
  if (error) return absl::ErrnoToStatus(error.value(), source_.path);
  folder_->Keep();
  RETURN_IF_ERROR(file_->Close());
  return LimitPackedFiles(source_.path, source_.max_folder_bytes);
}

}  // namespace tandem
