#ifndef TANDEM_ENGINE_OUTPUT_TEXT_H_
#define TANDEM_ENGINE_OUTPUT_TEXT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "tandem/detokenizer.h"
#include "tandem/types.h"

namespace tandem {

// Looks for all stop strings at once, byte by byte (Aho and Corasick, 1975). A state is the longest
// end of the text so far that a stop string begins with. A byte of text takes two moves in the
// mean, of at most as many comparisons as there are strings, however long they and the text are.
// 28 bytes of memory for each of the strings'. Thread-compatible.
class StopAutomaton {
 public:
  // REQUIRES: no stop string is empty.
  explicit StopAutomaton(absl::Span<const std::string> stops);

  void Read(char byte);
  // The length of the longest stop string that the text ends with; 0 if there is none.
  int match() const { return states_[state_].match; }
  // The length of the longest suffix of the text that is a proper prefix of a stop string.
  int beginning() const { return states_[state_].beginning; }
  // States visited since the beginning, for tests of the cost of a byte.
  int64_t num_steps() const { return num_steps_; }

 private:
  static constexpr int kRoot = 0;
  static constexpr int kNone = -1;
  struct State {
    char byte = 0;  // the last one
    int length = 0;
    int first_child = kNone;
    int next_sibling = kNone;
    int shorter = kRoot;  // the longest end of this that is a state, too
    int match = 0;
    int beginning = 0;
  };

  int ChildOf(int state, char byte);
  int Next(int state, char byte);
  void Add(const std::string& stop);

  std::vector<State> states_;
  int state_ = kRoot;
  int64_t num_steps_ = 0;
};

// What a request may ask for. The automaton of its stop strings takes 28 bytes for each of theirs,
// so at most .5 MB a generation, and each may take a comparison for a byte of text: at this number
// less than a hundredth of what the smallest model's token takes.
inline constexpr int kMaxStopStrings = 64;
inline constexpr int kMaxStopBytes = 16384;  // of all together

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
