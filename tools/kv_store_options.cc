#include "tools/kv_store_options.h"

#include "CLI/CLI.hpp"
#include "base/status_macros.h"
#include "tools/engine_options.h"

namespace tandem {

void KvStoreFlags::AddTo(CLI::App* app) {
  app->add_option("--kv-store", folder,
                  "Folder that keeps both models' caches of prompts and answers, so that later "
                  "processes need not compute them again [none]")
      ->type_name("DIR")
      ->group(kEngineGroup);
  app->add_option("--kv-store-size", size,
                  "Limit of that folder's size, such as 20G; the least recently used pages leave "
                  "first [10G]")
      ->type_name("SIZE")
      ->group(kEngineGroup);
}

absl::Status KvStoreFlags::Apply(EngineOptions* options) const {
  if (folder.empty() && !size.empty()) {
    return absl::InvalidArgumentError("--kv-store-size: needs a --kv-store");
  }
  if (folder.empty()) return absl::OkStatus();
  if (!options->prefix_cache) {
    return absl::InvalidArgumentError(
        "--kv-store: needs the prefix cache, which --compare and --no-prefix-cache turn off");
  }
  options->kv_store = folder;
  if (!size.empty()) {
    ASSIGN_OR_RETURN(options->kv_store_bytes, ParseSize("--kv-store-size", size));
  }
  return options->Validate();
}

}  // namespace tandem
