#ifndef TANDEM_TOOLS_KV_STORE_OPTIONS_H_
#define TANDEM_TOOLS_KV_STORE_OPTIONS_H_

#include <string>

#include "absl/status/status.h"
#include "tandem/engine_options.h"

namespace CLI {
class App;
}

namespace tandem {

// --kv-store and --kv-store-size, as typed.
struct KvStoreFlags {
  std::string folder;
  std::string size;

  // Adds them to `app`, which must not outlive this object.
  void AddTo(CLI::App* app);
  // Sets them, after all else that concerns the prefix cache. Errors are of the command line.
  absl::Status Apply(EngineOptions* options) const;
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_KV_STORE_OPTIONS_H_
