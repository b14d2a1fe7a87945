#include "model/packed_file.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <system_error>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "base/check.h"
#include "base/process_limits.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "base/thread_pool.h"
#include "checkpoint/safetensors.h"
#include "kernels/backend.h"
#include "model/packed_cache.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr size_t kFirstBytes = size_t{16} << 10;  // of each file, as a part of its identity
constexpr char kIdentity[] = "identity";          // entry name
constexpr char kChecksums[] = "checksums";        // entry name
constexpr size_t kEntryBytes = 512;               // maximum size of an entry in the header
constexpr size_t kBlockBytes = size_t{1} << 20;   // bytes per checksum

size_t Padded(size_t size) {
  return (size + kPackedAlignment - 1) / kPackedAlignment * kPackedAlignment;
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
  std::vector<uint64_t> checksums((bytes.size() + kBlockBytes - 1) / kBlockBytes);
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

// Whether a file in the folder is an unfinished packed file: "model-0123456789abcdef.safetensors"
// plus the suffix that NewPart appends, or a process id (the suffix of earlier versions).
bool IsPart(absl::string_view name) {
  constexpr size_t kHashDigits = 16;
  if (!absl::ConsumeSuffix(&name, ".part")) return false;
  const size_t dot = name.rfind('.');
  if (dot == absl::string_view::npos) return false;
  const absl::string_view number = name.substr(dot + 1);
  name = name.substr(0, dot);
  if (!absl::ConsumeSuffix(&name, ".safetensors") || name.size() <= kHashDigits) return false;
  const absl::string_view hash = name.substr(name.size() - kHashDigits);
  return name[name.size() - kHashDigits - 1] == '-' && absl::c_all_of(hash, absl::ascii_isxdigit) &&
         absl::c_all_of(number, absl::ascii_isxdigit);
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
  source.path = (fs::path(folder) /
                 absl::StrFormat("%s-%s-%016x.safetensors", first.parent_path().filename().string(),
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
  wanted.resize(Padded(wanted.size()));
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
  if (kept.size() != Padded(found.size() * sizeof(uint64_t))) {
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

bool IsUnfinishedPackedName(absl::string_view name) { return IsPart(name); }

void RemoveUnfinishedPackedFiles(const std::string& folder) {
  std::error_code error;
  for (fs::directory_iterator file(folder, error), end; !error && file != end;
       file.increment(error)) {
    if (IsPart(file->path().filename().string())) RemoveIfUnused(file->path().string());
  }
}

absl::StatusOr<PackedFileWriter> PackedFileWriter::Create(const PackedSource& source,
                                                          int max_entries) {
  std::error_code error;
  fs::create_directories(fs::path(source.path).parent_path(), error);
  if (error) return absl::ErrnoToStatus(error.value(), source.path);
  ASSIGN_OR_RETURN(OutputFolder folder, OutputFolder::Around(source.path));
  RETURN_IF_ERROR(folder.CheckFreeSpace(2 * source.bytes));
  ASSIGN_OR_RETURN(OutputFile file, folder.NewPart(fs::path(source.path).filename().string()));
  PackedFileWriter writer(source, max_entries, std::move(folder), std::move(file));
  RETURN_IF_ERROR(writer.file_.Seek(static_cast<int64_t>(writer.header_bytes_)));
  RETURN_IF_ERROR(writer.Add(kIdentity, AsBytes(source.identity)));
  return writer;
}

PackedFileWriter::PackedFileWriter(const PackedSource& source, int max_entries, OutputFolder folder,
                                   OutputFile file)
    : source_(source),
      header_bytes_(Padded(kEntryBytes * (max_entries + 3))),
      folder_(std::move(folder)),
      file_(std::move(file)),
      size_(static_cast<int64_t>(header_bytes_)) {}

absl::Status PackedFileWriter::Add(absl::string_view name, absl::Span<const std::byte> bytes) {
  const size_t padded = Padded(bytes.size());
  const auto size = static_cast<int64_t>(padded);
  entries_.push_back({.name = std::string(name), .dtype = "U8", .shape = {size}, .bytes = size});
  size_ += size;
  RETURN_IF_ERROR(file_.Write(View(bytes)));
  return file_.Write(std::string(padded - bytes.size(), '\0'));
}

// Adds the entry of the checksums first, because they cover the header, too.
absl::Status PackedFileWriter::Finish() {
  const int64_t size = size_;
  const size_t num_blocks = (size + kBlockBytes - 1) / kBlockBytes;
  RETURN_IF_ERROR(Add(kChecksums, AsBytes(std::string(num_blocks * sizeof(uint64_t), '\0'))));
  const std::string header = SafetensorsHeader(entries_, header_bytes_);
  TANDEM_CHECK(header.size() == header_bytes_);
  RETURN_IF_ERROR(file_.Seek(0));
  RETURN_IF_ERROR(file_.Write(header));
  {
    ASSIGN_OR_RETURN(const MappedFile written, MappedFile::Open(file_.path()));
    const std::vector<uint64_t> checksums = ChecksumsOf(written.bytes().first(size));
    RETURN_IF_ERROR(file_.Seek(size));
    RETURN_IF_ERROR(file_.Write(
        {reinterpret_cast<const char*>(checksums.data()), checksums.size() * sizeof(uint64_t)}));
  }
  RETURN_IF_ERROR(file_.Sync());
  file_.Forget();  // drops the page cache's small pages: the reader asks for huge ones
  std::error_code error;
  fs::rename(file_.path(), source_.path, error);
  if (error) return absl::ErrnoToStatus(error.value(), source_.path);
  folder_.Keep();
  RETURN_IF_ERROR(file_.Close());
  return LimitPackedFiles(source_.path, source_.max_folder_bytes);
}

}  // namespace tandem
