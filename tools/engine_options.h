#ifndef TANDEM_TOOLS_ENGINE_OPTIONS_H_
#define TANDEM_TOOLS_ENGINE_OPTIONS_H_

#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tandem/engine.h"
#include "tandem/engine_options.h"
#include "tandem/engine_parameters.h"
#include "tools/secret_file.h"

namespace CLI {
class App;
}

namespace tandem {

// The options of commands with an engine, as typed.
struct EngineFlags {
  // Which pair to use without --target. True: the real pair if it was fetched, else the shipped
  // one. False: the shipped pair.
  bool prefers_real_pair = false;
  EngineOptions options;
  int world = 0;  // 0: not given
  SecretSource rendezvous_secret = {.option = nullptr,
                                    .file_option = "--rendezvous-secret-file",
                                    .variable = "TANDEM_RENDEZVOUS_SECRET",
                                    .needed_by = "--rendezvous"};
  SecretSource kv_transfer_secret = {.option = nullptr,
                                     .file_option = "--kv-transfer-secret-file",
                                     .variable = "TANDEM_KV_TRANSFER_SECRET",
                                     .needed_by = "--kv-transfer"};

  // Adds the options of these groups (engine_parameters.h) to `app`, which must not outlive this
  // object. `with_draft_tokens`: also adds -k.
  void AddTo(CLI::App* app, std::initializer_list<absl::string_view> groups = {kEngineGroup},
             bool with_draft_tokens = true);
  // Returns `options` with every open choice made. An error means that the command line is wrong.
  // Fetches models of a hub, unless they `are_fetched_later`.
  absl::StatusOr<EngineOptions> ToOptions(bool are_fetched_later = false) const;

 private:
  // Sets target and draft.
  absl::Status ChooseModels(EngineOptions* chosen, bool are_fetched_later) const;
  absl::Status ChooseRanks(EngineOptions* chosen) const;
};

// Runs `job` on rank 0; on any other rank follows rank 0 instead.
absl::Status RunOrFollow(const EngineOptions& options, absl::FunctionRef<absl::Status()> job);

// Engine::Create, with a status line while it takes long.
absl::StatusOr<std::unique_ptr<Engine>> LoadEngine(const EngineOptions& options);

// Creates an engine and runs `job` with it. If it succeeds, completes the files of packed weights.
absl::Status RunWithEngine(const EngineOptions& options,
                           absl::FunctionRef<absl::Status(Engine&)> job);

// Adds the engine options with these names, such as "threads", to `app` under "Options". `app` must
// not outlive `options`.
void AddEngineOptions(CLI::App* app, std::initializer_list<absl::string_view> names,
                      EngineOptions* options);
// Whether `option`, such as "--kv-memory", is an option of the engine.
bool IsEngineOption(absl::string_view option);
// Returns `threads`, or the number of processors that this process may use if that is less; then
// logs a warning. 0, the default, stays 0.
int UsableThreads(int threads);

}  // namespace tandem

#endif  // TANDEM_TOOLS_ENGINE_OPTIONS_H_
