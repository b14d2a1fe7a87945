// The models of `serve --models FILE`: a file in TOML with a table for each
// (docs/server/models.md).
#ifndef TANDEM_TOOLS_MODEL_LIST_H_
#define TANDEM_TOOLS_MODEL_LIST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/api/pair_set.h"
#include "tools/engine_options.h"

namespace CLI {
class App;
}

namespace tandem {

// The options of a served pair, as typed on the command line or in a table.
struct ServedPairFlags {
  ServedPairFlags();

  EngineFlags engine;
  int max_waiting = 64;
  std::string generation_config = "auto";
  double unload_after_seconds = 0;  // 0: never

  // `app` must not outlive this object.
  void AddTo(CLI::App* app);
};

// Returns the name in the API of a model that has none: that of its folder or file, or of its
// repository on a hub, or else `target`.
std::string ModelNameOf(const std::string& target);

// Reads the file. Options that `serve`, the parsed command, was given are the defaults of every
// model. `memory_bytes` is what the models on this machine may take together. Errors name the file
// and the model.
absl::StatusOr<std::vector<PairSource>> ReadModelList(const std::string& path,
                                                      const CLI::App* serve, int64_t memory_bytes);

}  // namespace tandem

#endif  // TANDEM_TOOLS_MODEL_LIST_H_
