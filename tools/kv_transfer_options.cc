#include "tools/kv_transfer_options.h"

#include "CLI/CLI.hpp"
#include "base/status_macros.h"
#include "tools/engine_options.h"

namespace tandem {

void KvTransferFlags::AddTo(CLI::App* app) {
  const std::string group = "Transfer";
  app->add_option("--kv-transfer", address,
                  "Address at which other workers fetch cache pages, and from which pages are "
                  "fetched, as they reach it; port 0 is any that is free [none]")
      ->type_name("HOST:PORT")
      ->group(group);
  app->add_option("--kv-transfer-secret-file", secret.file,
                  "A file that holds the secret of all workers; needed where HOST is not a "
                  "loopback address [$TANDEM_KV_TRANSFER_SECRET, else none]")
      ->type_name("F")
      ->group(group);
  app->add_option("--kv-transfer-memory", memory,
                  "Limit of the memory that keeps prompts for other workers; the oldest leave "
                  "first [1G]")
      ->type_name("SIZE")
      ->group(group);
  app->add_option("--kv-transfer-lease", lease_seconds,
                  "How long a prompt that no worker fetches is kept [30]")
      ->type_name("SECONDS")
      ->group(group);
}

absl::Status KvTransferFlags::Apply(EngineOptions* options) const {
  if (address.empty()) {
    const bool has_other = !secret.file.empty() || !memory.empty() ||
                           lease_seconds != EngineOptions().kv_transfer_lease_seconds;
    if (!has_other) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(!secret.file.empty()
                                                       ? "--kv-transfer-secret-file"
                                                   : !memory.empty() ? "--kv-transfer-memory"
                                                                     : "--kv-transfer-lease",
                                                   ": needs a --kv-transfer"));
  }
  if (!options->prefix_cache) {
    return absl::InvalidArgumentError(
        "--kv-transfer: needs the prefix cache, which --no-prefix-cache turns off");
  }
  options->kv_transfer = address;
  options->kv_transfer_lease_seconds = lease_seconds;
  if (!memory.empty()) {
    ASSIGN_OR_RETURN(options->kv_transfer_bytes, ParseSize("--kv-transfer-memory", memory));
  }
  ASSIGN_OR_RETURN(options->kv_transfer_secret, secret.Read());
  return options->Validate();
}

}  // namespace tandem
