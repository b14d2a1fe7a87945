// Models that `tandem fetch` knows by name. The list is the table in known_models.cc.
#ifndef TANDEM_TOOLS_KNOWN_MODELS_H_
#define TANDEM_TOOLS_KNOWN_MODELS_H_

#include <cstdint>

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
  const char* file;       // its name in the model's folder
  const char* sha256;     // of the file, in hexadecimal
  const char* draft;      // the shipped model that drafts for it
  int draft_head_tokens;  // with a head of so many tokens
};

absl::Span<const KnownModel> KnownModels();
// The model of this name; null if there is none.
const KnownModel* FindKnownModel(absl::string_view name);

}  // namespace tandem

#endif  // TANDEM_TOOLS_KNOWN_MODELS_H_
