#ifndef TANDEM_ENGINE_OUTPUT_TEXT_H_
#define TANDEM_ENGINE_OUTPUT_TEXT_H_

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/stop_automaton.h"
#include "tandem/detokenizer.h"
#include "tandem/types.h"

namespace tandem {

// What a request may ask for. The automaton of its stop strings takes 28 bytes for each of theirs,
// so at most .5 MB a generation, and each may take a comparison for a byte of text: at this number
// less than a hundredth of what the smallest model's token takes.
inline constexpr int kMostStopStrings = 64;
inline constexpr int kMostStopBytes = 16384;  // of all together

// INVALID_ARGUMENT of the field "stop" if there are too many of them, or one is empty.
absl::Status CheckStopStrings(absl::Span<const std::string> stops);

// What a text leaves out where nobody asks for it.
struct ShownInText {
  bool special_tokens;
  bool stop;                               // the stop string that was met
  absl::Span<const TokenId> of_special{};  // those that are shown where others are not
};

// The text of a generation, token by token: decoded, cut exactly before the first stop string (or
// behind it), and let out no earlier than it is certain. Held back are unfinished characters and
// the longest end that a stop string may begin with. A token takes time in proportion to its own
// bytes. Thread-compatible.
class OutputText {
 public:
  using Shown = ShownInText;
  // Text follows that of `prompt`. A stop string that the first `min_tokens` tokens complete is
  // text like any other. `tokenizer` must outlive this object.
  OutputText(const Tokenizer* tokenizer, absl::Span<const TokenId> prompt,
             absl::Span<const std::string> stops, int min_tokens = 0,
             Shown shown = {.special_tokens = false, .stop = false});

  // False if the text has now met a stop string: nothing more is let out.
  bool Append(TokenId token);
  // At the end of the generation: lets out what is held back.
  void Finish();

  const std::string& text() const { return text_; }  // all that was let out

 private:
  bool AppendText(std::string_view piece, bool is_last);

  std::unique_ptr<Detokenizer> detokenizer_;
  StopAutomaton stops_;
  int min_tokens_ = 0;
  bool shows_stop_ = false;
  int num_tokens_ = 0;
  std::string decoded_;
  std::string text_;  // of `decoded_` what does not turn out to begin a stop string
  bool stopped_ = false;
};

}  // namespace tandem

#endif  // TANDEM_ENGINE_OUTPUT_TEXT_H_
