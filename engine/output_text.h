#ifndef TANDEM_ENGINE_OUTPUT_TEXT_H_
#define TANDEM_ENGINE_OUTPUT_TEXT_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/types.h"
#include "model/tokenizer/detokenizer.h"

namespace tandem {

// The text of a generation, token by token: decoded, cut exactly before the first stop string, and
// let out no earlier than it is certain. Held back are unfinished characters and the longest end
// that a stop string may begin with. Thread-compatible.
class OutputText {
 public:
  // Text follows that of `prompt`. A stop string that the first `min_tokens` tokens complete is
  // text like any other. `tokenizer` must outlive this object.
  OutputText(const Tokenizer* tokenizer, absl::Span<const TokenId> prompt,
             std::vector<std::string> stop, int min_tokens = 0);

  // False if the text has now met a stop string: nothing more is let out.
  bool Append(TokenId token);
  // At the end of the generation: lets out what is held back.
  void Finish();

  const std::string& text() const { return text_; }  // all that was let out

 private:
  bool AppendText(std::string_view piece, bool is_last);

  std::unique_ptr<Detokenizer> detokenizer_;
  std::vector<std::string> stop_;
  int min_tokens_ = 0;
  int num_tokens_ = 0;
  std::string text_;
  std::string held_;  // certain text that may still turn out to begin a stop string
  bool stopped_ = false;
};

}  // namespace tandem

#endif  // TANDEM_ENGINE_OUTPUT_TEXT_H_
