#ifndef TANDEM_TOOLS_ENGINE_OPTIONS_H_
#define TANDEM_TOOLS_ENGINE_OPTIONS_H_

#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tandem/engine.h"
#include "tools/secret_file.h"

namespace CLI {
class App;
}

namespace tandem {

// The group of these options in helps.
inline constexpr char kEngineGroup[] = "Models and machine";

// The options that every command with an engine has, as typed.
struct EngineFlags {
  // Without a target the pair of real models is taken where it is at hand, else the shipped pair;
  // if false always the shipped pair.
  bool prefers_real_pair = false;
  bool all_drafters = false;  // EngineOptions'
  std::string target;
  std::string draft;
  std::string drafter = "auto";
  std::string draft_tokens = "auto";
  std::string verifier = "auto";
  std::string device = "auto";
  int threads = 0;  // 0: not given
  std::string quantize = "none";
  std::string draft_quantize = "auto";
  std::string draft_head_tokens = "auto";
  std::string compute = "auto";
  std::string kv_cache = "auto";
  std::string draft_window = "auto";
  std::string draft_kv_cache;  // empty: not given
  std::string kv_memory;
  std::string draft_memory = "16M";
  int page_size = 16;
  int tensor_parallel = 1;
  bool draft_tensor_parallel = false;
  int rank = 0;
  int world = 0;  // 0: not given
  std::string rendezvous;
  SecretSource rendezvous_secret = {.what = "the secret",
                                    .option = nullptr,
                                    .file_option = "--rendezvous-secret-file",
                                    .variable = "TANDEM_RENDEZVOUS_SECRET"};
  int context = 0;  // 0: the model's
  std::string packed_weights;
  std::vector<std::string> allow_unknown_config;

  // Adds them to `app`, which must not outlive this object. `with_draft_tokens`: also -k.
  void AddTo(CLI::App* app, bool with_draft_tokens = true);
  // As engine options. Errors are of the command line.
  absl::StatusOr<EngineOptions> ToOptions() const;

 private:
  // Sets target and draft.
  absl::Status ChooseModels(EngineOptions* options) const;
  absl::Status ChooseRanks(EngineOptions* options) const;
};

// Runs `job`, or where this process is another rank than 0, follows rank 0 instead.
absl::Status RunOrFollow(const EngineOptions& options, absl::FunctionRef<absl::Status()> job);

// Adds --allow-unknown-config, in `group` unless that is empty.
void AddUnknownConfigOption(CLI::App* app, std::vector<std::string>* keys,
                            const std::string& group = "");
// --threads as given, 0 if it was not, but no more than the processors that this process may use:
// a warning in the log says so.
int UsableThreads(int threads);
// "auto", or a number of draft tokens. `option` stands before errors.
absl::StatusOr<int> ParseDraftTokens(const std::string& text,
                                     absl::string_view option = "--draft-tokens");
// "auto", or how many of a long prompt's last tokens the draft reads.
absl::StatusOr<int> ParseDraftWindow(const std::string& text);
// A number of bytes with an optional K, M, G or T (powers of 1024).
// `option` stands before errors.
absl::StatusOr<int64_t> ParseSize(absl::string_view option, const std::string& text);

}  // namespace tandem

#endif  // TANDEM_TOOLS_ENGINE_OPTIONS_H_
