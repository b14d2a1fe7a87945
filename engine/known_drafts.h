// Which drafts are known for a target: published, shipped or measured.
#ifndef TANDEM_ENGINE_KNOWN_DRAFTS_H_
#define TANDEM_ENGINE_KNOWN_DRAFTS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "draft/vocabulary_map.h"

namespace tandem {

struct KnownDraft {
  // A model; one that was trained to propose several tokens in one pass; a head that reads the
  // target's states.
  enum class Kind { kModel, kParallel, kHead };

  const char* target;  // a pattern of a target's name in lower case: * is any text
  const char* draft;   // a name that ModelNamed (tandem/model_places.h) takes
  Kind kind = Kind::kModel;
  // Parameters without embedding and head, of which a draft soon reads a small part
  // (docs/drafting/drafters.md).
  double millions = 0;
  // The share of drafted tokens that were kept; 0 if none was published. `draft_tokens`: how many a
  // round drafted; 0 if the engine chose.
  double accepted = 0;
  int draft_tokens = 0;
  const char* source = "";  // of the figure, or else of the pair

  // The chance that a drafted token is kept if all before it were; `otherwise` without a figure.
  double Acceptance(double otherwise) const;
};

// All drafts. Those for a target are in the order of their worth.
absl::Span<const KnownDraft> KnownDrafts();
// The drafts for a target with one of these names. A draft is not its own target's.
std::vector<const KnownDraft*> KnownDraftsFor(const std::vector<std::string>& names);

// The names by which a target may be known: as typed, those of its file or folder, and the one in a
// GGUF file; lower case, with hyphens for blanks and underscores. `path` need not exist.
std::vector<std::string> NamesOfModel(const std::string& typed, const std::string& path);

// Where a draft is on this machine: shipped, fetched, or a GGUF file in the target's folder that
// has its name, or has it in the file. Nothing if it is not here.
std::optional<std::string> FindDraft(const KnownDraft& draft, const std::string& target_path);

// Resolves `--draft auto`: returns the path of the best known draft that is here, or "" if none is,
// and logs the choice, and the command that fetches a better one.
std::string ChooseKnownDraft(const std::string& typed_target, const std::string& target_path,
                             bool may_be_head);

// Whether drafts may be accepted often enough to be useful.
bool IsUsable(const VocabularyMap& vocabulary);

struct VocabularyFit {
  bool is_same = false;    // every token has the same id
  bool is_usable = false;  // as it is, or translated
  int paired = 0;          // of the target's tokens
  int target = 0;
};
// Compares the vocabularies of two models. Reads both tokenizers. Errors name the file.
absl::StatusOr<VocabularyFit> CompareVocabularies(const std::string& target,
                                                  const std::string& draft);

}  // namespace tandem

#endif  // TANDEM_ENGINE_KNOWN_DRAFTS_H_
