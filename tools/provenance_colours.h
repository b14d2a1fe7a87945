#ifndef TANDEM_TOOLS_PROVENANCE_COLOURS_H_
#define TANDEM_TOOLS_PROVENANCE_COLOURS_H_

#include <memory>
#include <string>

#include "absl/types/span.h"
#include "tandem/completion.h"
#include "tandem/detokenizer.h"
#include "tandem/tokenizer.h"
#include "tandem/types.h"

namespace tandem {

// Whether standard output takes colours: a terminal that is not dumb, unless $NO_COLOR is set to
// something (https://no-color.org).
bool StandardOutputTakesColours();

// An answer for a terminal: what the draft wrote in green, what the target wrote itself as it is.
// Its text is that of the pieces, without stop strings; control characters but line ends and tabs
// are left out, lest a model command the terminal. Thread-compatible.
class ProvenanceColours {
 public:
  // The answer follows `prompt`. `tokenizer` must outlive this object.
  ProvenanceColours(const Tokenizer* tokenizer, absl::Span<const TokenId> prompt);

  // The text of the next tokens, coloured.
  std::string Next(const Piece& piece);
  // What is held back at the end, and the colour as it was.
  std::string End();

 private:
  void Append(const std::string& text, bool is_drafted, std::string* out);

  std::unique_ptr<Detokenizer> detokenizer_;
  bool is_green_ = false;
};

}  // namespace tandem

#endif  // TANDEM_TOOLS_PROVENANCE_COLOURS_H_
