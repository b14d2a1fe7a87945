#ifndef TANDEM_INCLUDE_TANDEM_DETOKENIZER_H_
#define TANDEM_INCLUDE_TANDEM_DETOKENIZER_H_

#include <memory>
#include <string>

#include "absl/types/span.h"
#include "tandem/tokenizer.h"
#include "tandem/types.h"

namespace tandem {

// Turns a stream of tokens into text as it comes. Only complete characters are let out: bytes that
// may still become one are held back, bytes that no longer can come out as U+FFFD (one for each
// maximal invalid part, as the Unicode standard recommends; for byte tokens see TextRules). The
// pieces and Flush() joined are the decoding of the whole. Constant work per token.
// Thread-compatible.
class Detokenizer {
 public:
  virtual ~Detokenizer() = default;
  // The text that `id` completes; often empty.
  virtual std::string Push(TokenId id) = 0;
  // At the end of the text: what is held back, as U+FFFD. Afterwards nothing is held.
  virtual std::string Flush() = 0;
  // Continues after `context`, whose own text is not let out. Of special tokens that are skipped
  // those in `shown` are let out. `tokenizer` must outlive the result.
  static std::unique_ptr<Detokenizer> New(const Tokenizer* tokenizer,
                                          absl::Span<const TokenId> context, bool skip_special,
                                          absl::Span<const TokenId> shown = {});
};

}  // namespace tandem

#endif  // TANDEM_INCLUDE_TANDEM_DETOKENIZER_H_
