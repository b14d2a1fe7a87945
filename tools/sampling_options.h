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

// The sampling options, as typed.
struct SamplingFlags {
  SamplingParams params;
  std::vector<std::string> logit_bias;
  std::optional<uint64_t> seed;

  // Adds the options to `app`, which must not outlive this object. The current values are the
  // defaults.
  void AddTo(CLI::App* app);
  // Parses the biases into `params` and validates it. An error means that the command line is
  // wrong.
  absl::Status Check();
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_SAMPLING_OPTIONS_H_
