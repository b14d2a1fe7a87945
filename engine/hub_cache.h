// The folder in which Python's huggingface_hub and `tandem fetch` keep files of a hub:
//   models--ORG--NAME/refs/main                     the commit of a branch or tag
//   models--ORG--NAME/snapshots/COMMIT/config.json  -> ../../blobs/HASH
//   models--ORG--NAME/blobs/HASH                    the file itself
#ifndef TANDEM_ENGINE_HUB_CACHE_H_
#define TANDEM_ENGINE_HUB_CACHE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/hub_files.h"

namespace tandem {

// $HF_HOME, else huggingface/ in $XDG_CACHE_HOME or ~/.cache. FAILED_PRECONDITION without any.
absl::StatusOr<std::string> HubHome();
// $HF_HUB_CACHE, else hub/ in HubHome(). It need not exist. Same error.
absl::StatusOr<std::string> HubCache();
// "models--ORG--NAME", the folder of a repository in HubCache().
std::string HubFolderName(const HubName& name);

// Whether a revision is a commit: 40 hexadecimal digits.
bool IsCommit(const std::string& revision);

// The path of a model whose files are all in the cache: a GGUF file, or a folder. NOT_FOUND
// otherwise; INVALID_ARGUMENT if several models are there and none is chosen.
absl::StatusOr<std::string> ModelInHubCache(const HubName& name);

// The paths of all models in the cache, of the newest commit of `main`.
std::vector<std::string> ModelsInHubCache();

}  // namespace tandem

#endif  // TANDEM_ENGINE_HUB_CACHE_H_
