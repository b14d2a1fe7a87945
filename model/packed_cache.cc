#include "model/packed_cache.h"

#include <endian.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/log.h"
#include "base/output_folder.h"
#include "model/packed_file.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

// Returns the beginning of the identity of a packed file, its first entry (PackedSource::identity);
// empty if the file has none.
std::string BeginningOfIdentity(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  uint64_t header_bytes = 0;
  file.read(reinterpret_cast<char*>(&header_bytes), sizeof(header_bytes));
  file.seekg(static_cast<std::streamoff>(le64toh(header_bytes)), std::ios::cur);
  std::string text(4096, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(file.gcount());
  return absl::StartsWith(text, "version ") ? text : "";
}

// Returns the model of an identity, whose third line is "PATH SIZE SECONDS NANOSECONDS" of its
// first file: this file, or its folder if it is one of a folder's files.
std::string ModelOf(const std::string& identity) {
  const std::vector<std::string> lines = absl::StrSplit(identity, absl::MaxSplits('\n', 3));
  if (lines.size() < 4) return "";
  std::vector<std::string> words = absl::StrSplit(lines[2], ' ');
  if (words.size() < 4) return "";
  words.resize(words.size() - 3);
  const fs::path file = absl::StrJoin(words, " ");
  return (file.extension() == ".gguf" ? file : file.parent_path()).string();
}

}  // namespace

std::vector<CachedFile> CachedFilesIn(const std::string& folder,
                                      absl::FunctionRef<bool(CachedFile*)> is_ours) {
  std::vector<CachedFile> files;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    CachedFile file{.path = entry->path().string()};
    struct stat info = {};
    if (lstat(file.path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    file.bytes = info.st_size;
    file.last_used = absl::TimeFromTimespec(info.st_mtim);
    if (is_ours(&file)) files.push_back(std::move(file));
  }
  std::sort(files.begin(), files.end(), [](const CachedFile& a, const CachedFile& b) {
    return std::tie(a.last_used, a.path) < std::tie(b.last_used, b.path);
  });
  return files;
}

std::vector<CachedFile> PackedFilesIn(const std::string& folder) {
  return CachedFilesIn(folder, [](CachedFile* file) {
    const fs::path path(file->path);
    file->is_unfinished = IsUnfinishedPackedName(path.filename().string());
    if (file->is_unfinished) return true;
    const std::string identity =
        path.extension() == ".safetensors" ? BeginningOfIdentity(file->path) : "";
    file->model = ModelOf(identity);
    return !identity.empty();
  });
}

absl::Status RemoveCachedFile(const CachedFile& file) {
  std::error_code error;
  if (!file.is_unfinished) {
    fs::remove(file.path, error);
  } else {
    RemoveIfUnused(file.path);
    if (fs::exists(file.path, error)) {
      return absl::UnavailableError(absl::StrCat(file.path, ": is being written"));
    }
  }
  return error ? absl::ErrnoToStatus(error.value(), file.path) : absl::OkStatus();
}

void MarkPackedUsed(const std::string& path) { utimensat(AT_FDCWD, path.c_str(), nullptr, 0); }

absl::Status CheckPackedSize(const std::string& path, int64_t bytes, int64_t max_bytes) {
  if (max_bytes == 0 || bytes <= max_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("packed_weights_size: must be at least ", bytes,
                                                   " to keep ", path, ", got ", max_bytes));
}

absl::Status LimitPackedFiles(const std::string& newest, int64_t max_bytes) {
  if (max_bytes == 0) return absl::OkStatus();
  std::vector<CachedFile> files = PackedFilesIn(fs::path(newest).parent_path().string());
  std::erase_if(files, [](const CachedFile& file) { return file.is_unfinished; });
  int64_t bytes = 0;
  for (const CachedFile& file : files) {
    bytes += file.bytes;
    if (file.path != newest) continue;
    absl::Status fits = CheckPackedSize(newest, file.bytes, max_bytes);
    if (fits.ok()) continue;
    RemoveCachedFile(file).IgnoreError();
    return fits;
  }
  for (const CachedFile& file : files) {
    if (bytes <= max_bytes) break;
    if (file.path == newest) continue;
    if (const absl::Status status = RemoveCachedFile(file); !status.ok()) {
      Log(LogLevel::kWarning, std::string(status.message()));
      continue;
    }
    bytes -= file.bytes;
    Log(LogLevel::kInfo, absl::StrCat("removed ", file.path, ": ", file.bytes, " bytes, last used ",
                                      absl::FormatTime(file.last_used),
                                      ", because packed_weights_size is ", max_bytes));
  }
  return absl::OkStatus();
}

}  // namespace tandem
