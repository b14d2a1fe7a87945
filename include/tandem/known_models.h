// Models that `tandem fetch` knows by name, and the known drafts for models. known_models.cc has
// the tables.
#ifndef TANDEM_INCLUDE_TANDEM_KNOWN_MODELS_H_
#define TANDEM_INCLUDE_TANDEM_KNOWN_MODELS_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tandem {

struct KnownModel {
  const char* name;  // also the name of its folder
  const char* what;  // short description
  const char* maker;
  const char* licence;  // SPDX identifier
  int64_t bytes;        // of the file
  // The Python package that contains it (name and version), and the file in the wheel.
  const char* package;
  const char* version;
  const char* member;
  const char* file;    // file name in the model's folder
  const char* sha256;  // of the file, in hexadecimal
  const char* draft;   // the shipped model that drafts for it
  bool draft_is_head = false;
};

absl::Span<const KnownModel> KnownModels();
// Returns the model of this name, or null if there is none.
const KnownModel* FindKnownModel(absl::string_view name);

// The names of a target and of its known draft.
struct KnownPair {
  const char* target;
  const char* draft;
  bool draft_is_head = false;

  // The draft to use when `ranks` ranks share the target; "" for a head with several ranks, which
  // cannot run heads (docs/drafting/draft_heads.md#limits).
  const char* DraftFor(int ranks) const { return draft_is_head && ranks > 1 ? "" : draft; }
};
// Returns the pair of this target, or nothing if there is none.
std::optional<KnownPair> FindKnownPair(absl::string_view target);
// The story-telling pair that comes with the program.
inline constexpr KnownPair kStoryPair = {"storyteller-7m", "storyteller-1m"};
// Whether a model of this name comes with the program.
bool IsShipped(absl::string_view name);

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_KNOWN_MODELS_H_
