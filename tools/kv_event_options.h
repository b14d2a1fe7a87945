#ifndef TANDEM_TOOLS_KV_EVENT_OPTIONS_H_
#define TANDEM_TOOLS_KV_EVENT_OPTIONS_H_

#include <string>

#include "absl/status/status.h"
#include "tandem/engine_options.h"

namespace CLI {
class App;
}

namespace tandem {

// --kv-events and the flags that go with it, as typed.
struct KvEventFlags {
  std::string endpoint;
  std::string replay;
  std::string topic;

  // Adds them to `app`, which must not outlive this object.
  void AddTo(CLI::App* app);
  // Sets them, after all else that concerns the prefix cache. Errors are of the command line.
  absl::Status Apply(EngineOptions* options) const;
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_KV_EVENT_OPTIONS_H_
