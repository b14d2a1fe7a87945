// Resolves names of models to the folders of models that come with the program or were downloaded
// with `tandem fetch`.
//
//   EngineOptions options{.target = "smollm2"};
//   RETURN_IF_ERROR(ResolveModels(&options));  // as Engine::Create does
//   // options.target is the model's folder, options.draft that of its known draft.
#ifndef TANDEM_INCLUDE_TANDEM_MODEL_PLACES_H_
#define TANDEM_INCLUDE_TANDEM_MODEL_PLACES_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tandem/engine_options.h"
#include "tandem/known_models.h"

namespace tandem {

// The folder of fetched models: $TANDEM_MODEL_CACHE, else models/cache/ of the checkout that the
// program was built in, else tandem/models/ in $XDG_CACHE_HOME or ~/.cache. It need not exist.
// FAILED_PRECONDITION if none of these is available, or the variable is "none".
absl::StatusOr<std::string> ModelCache();
// The folder of packed weights in ModelCache(). Same errors.
absl::StatusOr<std::string> PackedWeightsFolder();

// The folder of a fetched model; nothing if it was not fetched.
std::optional<std::string> FetchedModel(const KnownModel& model);

// Returns the path of a model given as a path or a name. Returns existing paths and the empty path
// unchanged. Returns the folder for the name of a model that was fetched or comes with the program.
// A name ORG/NAME[@REVISION][:FILE or quantisation] stands for the files of that repository which
// `tandem fetch` or Python's huggingface_hub has put into the latter's cache: the folder, or a GGUF
// file. NOT_FOUND, naming what is allowed, for anything else.
absl::StatusOr<std::string> ModelNamed(const std::string& name);

// Returns the known model whose file is at `path` or in the folder `path`, by the file's name and
// size. Null if there is none.
const KnownModel* KnownModelAt(const std::string& path);

// A target with a draft for it; the draft may be empty.
struct PairPaths {
  std::string target;
  std::string draft;
};
// Returns the pair of real models: a fetched known model whose draft is available. Nothing if there
// is none. The draft is empty if `ranks` ranks that share the target cannot run it.
std::optional<PairPaths> RealPair(int ranks = 1);
// Returns the story-telling pair that comes with the program.
PairPaths StoryPair();

// Replaces the names of models in `options` with their paths. A target given by name also sets its
// known draft, unless a draft is given, the drafter does not use one, or it is not available. The
// draft "auto" becomes the best known draft that is here, or none, and the log names a better one.
// Paths stay unchanged and do not set a draft, so a second call is a no-op. Errors: ModelNamed's;
// `options` is then unchanged.
absl::Status ResolveModels(EngineOptions* options);

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_MODEL_PLACES_H_
