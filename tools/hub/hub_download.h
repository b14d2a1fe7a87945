#ifndef TANDEM_TOOLS_HUB_HUB_DOWNLOAD_H_
#define TANDEM_TOOLS_HUB_HUB_DOWNLOAD_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "engine/hub_files.h"
#include "tools/hub/hub_client.h"

namespace tandem {

struct HubDownload {
  HubName name{};
  std::string commit{};
  HubFile file{};
  std::string blob{};  // where the file is to be; its folder exists
  std::string lock{};  // a file that only one process at a time locks; Python's is the same
};

// The bytes of a blob that an interrupted download has left on the disk.
int64_t PartialBytes(const std::string& blob);

// Brings a file, unless it is there. Goes on where an earlier download ended, with a large file in
// four places at a time, and tries again after failures that may pass. The blob appears once its
// size and its hash are right. `received` counts the bytes that are there; it goes back if the
// server can only begin at the first. DATA_LOSS for another hash or size, RESOURCE_EXHAUSTED for a
// full disk, other errors of writing, and HubClient's.
absl::Status DownloadFile(const HubClient& client, const HubDownload& download,
                          std::atomic<int64_t>* received);

}  // namespace tandem

#endif  // TANDEM_TOOLS_HUB_HUB_DOWNLOAD_H_
