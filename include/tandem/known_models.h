// Models that `tandem fetch` knows by name, and the drafts that are known for models. The lists are
// the tables in known_models.cc.
#ifndef TANDEM_INCLUDE_TANDEM_KNOWN_MODELS_H_
#define TANDEM_INCLUDE_TANDEM_KNOWN_MODELS_H_

#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tandem {

struct KnownModel {
  const char* name;  // as it is asked for, and that of its folder
  const char* what;  // in a few words
  const char* maker;
  const char* licence;  // its SPDX name
  int64_t bytes;        // of the file
  // The Python package that it is published in, by name and version, and the file in its wheel.
  const char* package;
  const char* version;
  const char* member;
  const char* file;    // its name in the model's folder
  const char* sha256;  // of the file, in hexadecimal
  const char* draft;   // the shipped model that drafts for it
  bool draft_is_head = false;
};

absl::Span<const KnownModel> KnownModels();
// The model of this name; null if there is none.
const KnownModel* FindKnownModel(absl::string_view name);

// A target and the draft that is known for it, by their names.
struct KnownPair {
  const char* target;
  const char* draft;
  bool draft_is_head = false;

  // The draft where so many ranks share the target out; "" if it is a head and there are several,
  // which run none (docs/draft_heads.md#limits).
  const char* DraftFor(int ranks) const { return draft_is_head && ranks > 1 ? "" : draft; }
};
// The pair of this target; nothing if there is none.
std::optional<KnownPair> FindKnownPair(absl::string_view target);
// The pair that comes with the program and tells stories.
inline constexpr KnownPair kStoryPair = {"storyteller-7m", "storyteller-1m"};
// Whether a model of this name comes with the program.
bool IsShipped(absl::string_view name);

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_KNOWN_MODELS_H_
