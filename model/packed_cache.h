// The files of packed weights in a folder: how much they take, when they were used, and which to
// remove.
#ifndef TANDEM_MODEL_PACKED_CACHE_H_
#define TANDEM_MODEL_PACKED_CACHE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"

namespace tandem {

// A file that this engine made, and that may be removed at any time.
struct CachedFile {
  std::string path;
  int64_t bytes = 0;
  absl::Time last_used{};      // the modification time; reading a file may set its access time
  std::string model{};         // the path of the model it belongs to; empty if unknown
  bool is_unfinished = false;  // being written, or left by a killed process
};

// Returns the regular files of a folder, not of its subfolders, that `is_ours` accepts; the least
// recently used first. `is_ours` is called with a file of which only `path`, `bytes` and
// `last_used` are set. Ignores links, and folders that cannot be read.
std::vector<CachedFile> CachedFilesIn(const std::string& folder,
                                      absl::FunctionRef<bool(CachedFile*)> is_ours);

// Returns the packed files of a folder, unfinished ones included, by their names and first bytes.
std::vector<CachedFile> PackedFilesIn(const std::string& folder);

// Removes a file of CachedFilesIn. UNAVAILABLE if it is being written; other errors name it.
absl::Status RemoveCachedFile(const CachedFile& file);

// Records that the packed file is used now. Does nothing without permission to write it.
void MarkPackedUsed(const std::string& path);

// Removes the least recently used other packed files in the folder of `newest`, which was just
// written, until all of them have at most `max_bytes`. Processes that have mapped a removed file
// keep its contents. RESOURCE_EXHAUSTED if `newest` is larger itself: then it is removed, and no
// other file.
absl::Status LimitPackedFiles(const std::string& newest, int64_t max_bytes);
// RESOURCE_EXHAUSTED if a packed file of `bytes` is larger than the limit; 0 means without a limit.
absl::Status CheckPackedSize(const std::string& path, int64_t bytes, int64_t max_bytes);

}  // namespace tandem

#endif  // TANDEM_MODEL_PACKED_CACHE_H_
