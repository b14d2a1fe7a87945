#ifndef TANDEM_TOOLS_ENGINE_OPTIONS_H_
#define TANDEM_TOOLS_ENGINE_OPTIONS_H_

#include <initializer_list>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tandem/engine_options.h"
#include "tandem/engine_parameters.h"
#include "tools/secret_file.h"

namespace CLI {
class App;
}

namespace tandem {

// The options of commands with an engine, as typed.
struct EngineFlags {
  // Without a target the pair of real models is taken where it is at hand, else the shipped pair;
  // if false always the shipped pair.
  bool prefers_real_pair = false;
  EngineOptions options;
  int world = 0;  // 0: not given
  SecretSource rendezvous_secret = {.what = "the secret",
                                    .option = nullptr,
                                    .file_option = "--rendezvous-secret-file",
                                    .variable = "TANDEM_RENDEZVOUS_SECRET"};
  SecretSource kv_transfer_secret = {.what = "the secret",
                                     .option = nullptr,
                                     .file_option = "--kv-transfer-secret-file",
                                     .variable = "TANDEM_KV_TRANSFER_SECRET"};

  // Adds those of these groups (engine_parameters.h) to `app`, which must not outlive this object.
  // `with_draft_tokens`: also -k.
  void AddTo(CLI::App* app, std::initializer_list<absl::string_view> groups = {kEngineGroup},
             bool with_draft_tokens = true);
  // `options` with everything chosen that was left open. Errors are of the command line.
  absl::StatusOr<EngineOptions> ToOptions() const;

 private:
  // Sets target and draft.
  absl::Status ChooseModels(EngineOptions* chosen) const;
  absl::Status ChooseRanks(EngineOptions* chosen) const;
};

// Runs `job`, or where this process is another rank than 0, follows rank 0 instead.
absl::Status RunOrFollow(const EngineOptions& options, absl::FunctionRef<absl::Status()> job);

// Adds the engine's options of these names, such as "threads", under the usual heading of `app`,
// which must not outlive `options`.
void AddEngineOptions(CLI::App* app, std::initializer_list<absl::string_view> names,
                      EngineOptions* options);
// Whether an option of this name, such as "--kv-memory", is one of the engine's.
bool IsEngineOption(absl::string_view option);
// --threads as given, 0 if it was not, but no more than the processors that this process may use:
// a warning in the log says so.
int UsableThreads(int threads);

}  // namespace tandem

#endif  // TANDEM_TOOLS_ENGINE_OPTIONS_H_
