#ifndef TANDEM_TOOLS_KV_TRANSFER_OPTIONS_H_
#define TANDEM_TOOLS_KV_TRANSFER_OPTIONS_H_

#include <string>

#include "absl/status/status.h"
#include "tandem/engine_options.h"
#include "tools/secret_file.h"

namespace CLI {
class App;
}

namespace tandem {

// --kv-transfer and what belongs to it, as typed.
struct KvTransferFlags {
  std::string address;
  SecretSource secret = {.what = "the secret",
                         .option = nullptr,
                         .file_option = "--kv-transfer-secret-file",
                         .variable = "TANDEM_KV_TRANSFER_SECRET"};
  std::string memory;
  int lease_seconds = EngineOptions().kv_transfer_lease_seconds;

  // Adds them to `app`, which must not outlive this object.
  void AddTo(CLI::App* app);
  // Sets them, after all else that concerns the prefix cache. Errors are of the command line.
  absl::Status Apply(EngineOptions* options) const;
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_KV_TRANSFER_OPTIONS_H_
