// Brings models of a hub into the cache of Python's huggingface_hub, in its form
// (engine/hub_cache.h), so that both find what the other has brought.
#ifndef TANDEM_TOOLS_HUB_HUB_FETCH_H_
#define TANDEM_TOOLS_HUB_HUB_FETCH_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/hub/hub_client.h"

namespace tandem {

// Brings the files of the newest commit of a model that are not here, tells on standard error how
// far it is, and returns the model's path. Files that were complete stay after an error, and what
// has come of others is the beginning of the next attempt. ChooseModel's, HubClient's and
// DownloadFile's errors; RESOURCE_EXHAUSTED, before anything is brought, if the disk is too small.
absl::StatusOr<std::string> FetchFromHub(const HubClient& client, const HubName& name);

// Brings only the model's config.json, and returns its folder. Same errors, and
// FAILED_PRECONDITION for a GGUF file, whose configuration is a part of it.
absl::StatusOr<std::string> FetchConfig(const HubClient& client, const HubName& name);

// The table of the files that FetchFromHub would bring.
absl::StatusOr<std::string> FetchPlan(const HubClient& client, const HubName& name);

// Fetches a model of the hub that is not here, unless $HF_HUB_OFFLINE forbids it. Does nothing for
// paths and other names. Errors give the program the exit status 1.
absl::Status FetchIfMissing(const std::string& name);

// ModelNamed (tandem/model_places.h) after FetchIfMissing.
absl::StatusOr<std::string> BringModel(const std::string& name);
// The same, or the folder of FetchConfig if the model is not here.
absl::StatusOr<std::string> BringConfig(const std::string& name);

}  // namespace tandem

#endif  // TANDEM_TOOLS_HUB_HUB_FETCH_H_
