#ifndef TANDEM_INCLUDE_TANDEM_DETOKENIZER_H_
#define TANDEM_INCLUDE_TANDEM_DETOKENIZER_H_

#include <memory>
#include <string>

#include "absl/types/span.h"
#include "tandem/tokenizer.h"
#include "tandem/types.h"

namespace tandem {

// Turns a stream of tokens into text. Returns only complete characters: bytes that may still become
// a character are held back, and bytes that cannot become U+FFFD (one for each maximal invalid
// part, as the Unicode standard recommends; for byte tokens see TextRules). The pieces and Flush()
// joined equal the decoding of all tokens. Constant work per token. Thread-compatible.
class Detokenizer {
 public:
  virtual ~Detokenizer() = default;
  // The text that `id` completes; often empty.
  virtual std::string Push(TokenId id) = 0;
  // Ends the text: returns the bytes held back, as U+FFFD, and clears them.
  virtual std::string Flush() = 0;
  // A copy, which continues at the same place.
  virtual std::unique_ptr<Detokenizer> Clone() const = 0;
  // Returns a detokenizer that continues after `context`, whose own text is not returned. If
  // special tokens are skipped, those in `shown` are still returned. `tokenizer` must outlive the
  // result.
  static std::unique_ptr<Detokenizer> New(const Tokenizer* tokenizer,
                                          absl::Span<const TokenId> context, bool skip_special,
                                          absl::Span<const TokenId> shown = {});
};

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_DETOKENIZER_H_
