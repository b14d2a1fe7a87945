// Zip archives whose entries are stored as they are, not compressed: the frame of what torch.save
// writes. Format: https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT
#ifndef TANDEM_CHECKPOINT_STORED_ZIP_H_
#define TANDEM_CHECKPOINT_STORED_ZIP_H_

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tandem {

struct ZipEntry {
  absl::string_view name;             // in the file
  absl::Span<const std::byte> bytes;  // in the file, too
};

// The entries of an archive without a comment, in the order of its directory; checksums are not
// looked at. `file_name` is for messages. INVALID_ARGUMENT, one line naming the file and the entry,
// what was found and what is allowed.
absl::StatusOr<std::vector<ZipEntry>> ReadStoredZip(absl::Span<const std::byte> file,
                                                    absl::string_view file_name);

}  // namespace tandem

#endif  // TANDEM_CHECKPOINT_STORED_ZIP_H_
