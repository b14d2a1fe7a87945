// Tokenizers of SentencePiece's kind in a GGUF file: scores in place of the merges of a
// tokenizer.json.
#ifndef TANDEM_TOOLS_CHECKPOINTS_GGUF_PIECES_H_
#define TANDEM_TOOLS_CHECKPOINTS_GGUF_PIECES_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "nlohmann/json.hpp"

namespace tandem {

struct GgufPieces {
  bool adds_prefix = false;    // a space in front of a text
  std::vector<float> scores;   // [vocab]: which of two pairs is merged, that with the higher
  std::vector<int32_t> kinds;  // [vocab]: TokenKind, with those of unknown text and bytes
  int32_t unknown = -1;        // its id, or none
};

// The pairs that a tokenizer.json merges, whichever of its two forms it has.
std::vector<std::pair<std::string, std::string>> MergesOf(const nlohmann::json& tokenizer);

// Whether a tokenizer.json is of that kind: BPE whose characters without a token become bytes.
bool IsOfPieces(const nlohmann::json& tokenizer);

// Of such a tokenizer, whose tokens and kinds, each [vocab], are known otherwise. A file merges
// every pair that makes a token, so these must be the merges, and all pairs that make one token
// have one score, so nothing may come between them. INVALID_ARGUMENT naming `file` and what has no
// place in a GGUF file.
absl::StatusOr<GgufPieces> PiecesOf(const nlohmann::json& tokenizer,
                                    absl::Span<const std::string> tokens,
                                    absl::Span<const int32_t> kinds, const std::string& file);

}  // namespace tandem

#endif  // TANDEM_TOOLS_CHECKPOINTS_GGUF_PIECES_H_
