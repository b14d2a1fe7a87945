#ifndef TANDEM_TOOLS_SAMPLING_OPTIONS_H_
#define TANDEM_TOOLS_SAMPLING_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tandem/sampling_params.h"

namespace CLI {
class App;
}

namespace tandem {

// The options of how tokens are drawn, as typed.
struct SamplingFlags {
  SamplingParams params;
  std::vector<std::string> logit_bias;
  std::optional<uint64_t> seed;

  // Adds them to `app`, which must not outlive this object. What they are now are the defaults.
  void AddTo(CLI::App* app);
  // Reads the biases into `params`. Errors are of the command line.
  absl::Status Check();
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_SAMPLING_OPTIONS_H_
