// Names of models in place of paths, and the folders that they stand for: those that come with the
// program, and those that `tandem fetch` has brought.
//
//   EngineOptions options{.target = "smollm2"};
//   RETURN_IF_ERROR(ResolveModels(&options));  // as Engine::Create does
//   // options.target is its folder, options.draft that of the draft which is known for it.
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
// program was built in, else tandem/models/ in $XDG_CACHE_HOME or ~/.cache. It need not be there.
// FAILED_PRECONDITION if there is neither of these, or the variable is "none".
absl::StatusOr<std::string> ModelCache();
// The folder of packed weights there. The same errors.
absl::StatusOr<std::string> PackedWeightsFolder();

// The folder that a model was fetched to; nothing if it was not.
std::optional<std::string> FetchedModel(const KnownModel& model);

// The path of a model that was given as a path or a name. A path that exists, and the empty one,
// are themselves. Otherwise the name of a fetched model, or of one that comes with the program,
// stands for its folder. NOT_FOUND, saying what is allowed, for anything else.
absl::StatusOr<std::string> ModelNamed(const std::string& name);

// The known model whose file `path` is, or is a folder of: a file of its name and size. Null if
// there is none.
const KnownModel* KnownModelAt(const std::string& path);

// A target with a draft for it; the draft may be empty.
struct PairPaths {
  std::string target;
  std::string draft;
};
// The pair of real models: a known model that was fetched and has its draft at hand. Nothing if
// there is none. The draft is empty where so many ranks that share the target out cannot run it.
std::optional<PairPaths> RealPair(int ranks = 1);
// The pair that tells stories, which comes with the program.
PairPaths StoryPair();

// Replaces the names of models in `options` by their paths. A target that is given by its name
// brings the draft that is known for it, unless a draft is given, the drafter has no use for one,
// or it is not at hand. Paths stay as they are and bring nothing, so a second call changes nothing.
// Errors: ModelNamed's; then `options` is as it was.
absl::Status ResolveModels(EngineOptions* options);

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_MODEL_PLACES_H_
