// Models of a hub (Hugging Face's, or one with its API): how users name them, and which files of a
// repository make up a model.
#ifndef TANDEM_ENGINE_HUB_FILES_H_
#define TANDEM_ENGINE_HUB_FILES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem {

// ORG/NAME[@REVISION][:FILE or quantisation]
struct HubName {
  std::string repository{};  // "ORG/NAME"
  std::string revision = "main";
  // A file, or a part of the name of a GGUF file, such as "Q4_K_M"; empty for the only model.
  std::string choice{};

  // Nullopt if `text` has another form. Names of GGUF and JSON files are paths, not repositories.
  static std::optional<HubName> Parse(absl::string_view text);
  std::string Text() const;  // what Parse reads
};

struct HubFile {
  std::string name{};  // relative to the repository, with forward slashes
  int64_t bytes = 0;
  std::string hash{};  // hexadecimal: SHA-256, or 40 digits: git's SHA-1; empty if unknown
};

struct HubModel {
  std::string path{};  // of the GGUF file, or its first part; empty: the folder is the model
  std::vector<HubFile> files{};

  int64_t Bytes() const;
};

// Chooses among the files of a repository:
// - with a choice the GGUF file, with all of its parts, of this name, or whose name has the choice
//   as words, whatever the case;
// - without one the folder, if it has a configuration and weights: these, tokenizers and templates;
// - else the only GGUF file.
// NOT_FOUND if there is none or a part is missing; INVALID_ARGUMENT with a list if several fit.
absl::StatusOr<HubModel> ChooseModel(const HubName& name, const std::vector<HubFile>& files);

}  // namespace tandem

#endif  // TANDEM_ENGINE_HUB_FILES_H_
