#include "model/packed_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "kernels/backend.h"
#include "model/formats/safetensors.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

constexpr size_t kFirstBytes = size_t{16} << 10;  // of a file, in its identity
constexpr char kIdentity[] = "identity";          // the entry of this name
constexpr size_t kEntryBytes = 512;               // of the header, at most

size_t Padded(size_t size) {
  return (size + kPackedAlignment - 1) / kPackedAlignment * kPackedAlignment;
}

absl::string_view AsText(absl::Span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
absl::Span<const std::byte> AsBytes(absl::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
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
                    AsText(file.bytes().first(std::min(kFirstBytes, file.bytes().size()))));
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
  if (AsText(identity) == wanted) return packed;
  return absl::FailedPreconditionError(
      absl::StrCat(source.path, ": was packed from other files than are there now"));
}

absl::StatusOr<absl::Span<const std::byte>> PackedFile::Find(absl::string_view name) const {
  const auto found = entries_.find(name);
  const bool is_there = found != entries_.end() &&
                        reinterpret_cast<uintptr_t>(found->second.data()) % kPackedAlignment == 0;
  if (is_there) return found->second;
  return absl::FailedPreconditionError(absl::StrCat(path_, ": has no \"", name, "\""));
}

absl::StatusOr<PackedFileWriter> PackedFileWriter::Create(const PackedSource& source,
                                                          int max_entries) {
  std::error_code error;
  fs::create_directories(fs::path(source.path).parent_path(), error);
  if (error) return absl::ErrnoToStatus(error.value(), source.path);
  ASSIGN_OR_RETURN(OutputFolder folder, OutputFolder::Around(source.path));
  RETURN_IF_ERROR(folder.CheckFreeSpace(2 * source.bytes));
  const std::string name =
      absl::StrCat(fs::path(source.path).filename().string(), ".", getpid(), ".part");
  std::string path = (fs::path(source.path).parent_path() / name).string();
  fs::remove(path, error);  // left by a process with this id that crashed
  ASSIGN_OR_RETURN(OutputFile file, folder.NewFile(name));
  PackedFileWriter writer(source, max_entries, std::move(folder), std::move(file), std::move(path));
  RETURN_IF_ERROR(writer.file_.Seek(static_cast<int64_t>(writer.header_bytes_)));
  RETURN_IF_ERROR(writer.Add(kIdentity, AsBytes(source.identity)));
  return writer;
}

PackedFileWriter::PackedFileWriter(const PackedSource& source, int max_entries, OutputFolder folder,
                                   OutputFile file, std::string path)
    : source_(source),
      header_bytes_(Padded(kEntryBytes * (max_entries + 2))),
      folder_(std::move(folder)),
      file_(std::move(file)),
      path_(std::move(path)) {}

absl::Status PackedFileWriter::Add(absl::string_view name, absl::Span<const std::byte> bytes) {
  const size_t padded = Padded(bytes.size());
  const auto size = static_cast<int64_t>(padded);
  entries_.push_back({.name = std::string(name), .dtype = "U8", .shape = {size}, .bytes = size});
  RETURN_IF_ERROR(file_.Write(AsText(bytes)));
  return file_.Write(std::string(padded - bytes.size(), '\0'));
}

absl::Status PackedFileWriter::Finish() {
  const std::string header = SafetensorsHeader(entries_, header_bytes_);
  TANDEM_CHECK(header.size() == header_bytes_);
  RETURN_IF_ERROR(file_.Seek(0));
  RETURN_IF_ERROR(file_.Write(header));
  RETURN_IF_ERROR(file_.Sync());
  file_.Forget();  // writing cached it in small pages; the reader will ask for huge ones
  RETURN_IF_ERROR(file_.Close());
  std::error_code error;
  fs::rename(path_, source_.path, error);
  if (error) return absl::ErrnoToStatus(error.value(), source_.path);
  folder_.Keep();
  return absl::OkStatus();
}

}  // namespace tandem
