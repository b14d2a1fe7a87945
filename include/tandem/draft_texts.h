#ifndef TANDEM_INCLUDE_TANDEM_DRAFT_TEXTS_H_
#define TANDEM_INCLUDE_TANDEM_DRAFT_TEXTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tandem {

// Texts that outputs may repeat in parts: files of a code base, a manual, yesterday's answers.
struct DraftTextInput {
  std::string name{};  // for people
  std::vector<std::string> texts{};
  // The tenant (Request::cache_salt). Only its own requests draft from the texts.
  std::string cache_salt{};
};

// Texts that the engine holds.
struct DraftTextInfo {
  std::string id;
  std::string name;
  int num_texts = 0;
  int64_t num_tokens = 0;
  int64_t bytes = 0;  // of memory
  absl::Time created;

  bool operator==(const DraftTextInfo&) const = default;
};

// Reads the texts of a file: of one that ends in ".jsonl" the strings that are the lines, or that
// their members "text" are, otherwise the whole file. Its path is the name. Errors name the file
// and the line.
absl::StatusOr<DraftTextInput> ReadDraftTextFile(const std::string& path);

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_DRAFT_TEXTS_H_
