// Where models lie: those that come with the program, and those that `tandem fetch` has brought.
#ifndef TANDEM_TOOLS_MODEL_PLACES_H_
#define TANDEM_TOOLS_MODEL_PLACES_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "tools/known_models.h"

namespace tandem {

// The folder of a shipped model, found from the program's own place; the name itself if it is not
// there.
std::string ShippedModel(const std::string& name);

// The folder of fetched models: $TANDEM_MODEL_CACHE, else models/cache/ of the checkout that the
// program was built in, else tandem/models/ in $XDG_CACHE_HOME or ~/.cache. It need not be there.
// FAILED_PRECONDITION if there is neither of these, or the variable is "none".
absl::StatusOr<std::string> ModelCache();
// The folder of packed weights there. Likewise.
absl::StatusOr<std::string> PackedWeightsFolder();

// The folder that a model was fetched to; nothing if it was not.
std::optional<std::string> FetchedModel(const KnownModel& model);

// What an option that takes a model means: `path` itself, or, if nothing of that path is there, the
// folder of the known model of this name. FAILED_PRECONDITION, saying how, if it has to be fetched.
absl::StatusOr<std::string> ModelNamed(const std::string& path);

// A target with a draft for it; the draft may be empty.
struct PairPaths {
  std::string target;
  std::string draft;
  int draft_head_tokens = 0;
};
// The pair of real models: a known model that was fetched and has its draft at hand. Nothing if
// there is none.
std::optional<PairPaths> RealPair();
// The pair that tells stories, which comes with the program.
PairPaths StoryPair();

}  // namespace tandem

#endif  // TANDEM_TOOLS_MODEL_PLACES_H_
