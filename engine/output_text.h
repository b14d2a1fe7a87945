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

// Searches for all stop strings at once, byte by byte (Aho and Corasick, 1975). A state is the
// longest suffix of the text so far that is a prefix of a stop string. A byte of text takes two
// transitions on average, each with at most as many comparisons as there are strings, regardless of
// the length of strings and text. Uses 28 bytes of memory per byte of the stop strings.
// Thread-compatible.
class StopAutomaton {
 public:
  // REQUIRES: no stop string is empty.
  explicit StopAutomaton(absl::Span<const std::string> stops);

  void Read(char byte);
  // The length of the longest stop string with which the text ends; 0 if there is none.
  int match() const { return states_[state_].match; }
  // The length of the longest suffix of the text that is a proper prefix of a stop string.
  int beginning() const { return states_[state_].beginning; }
  // Number of states visited so far, for tests of the cost per byte.
  int64_t num_steps() const { return num_steps_; }

 private:
  static constexpr int kRoot = 0;
  static constexpr int kNone = -1;
  struct State {
    char byte = 0;  // the last byte of this state's string
    int length = 0;
    int first_child = kNone;
    int next_sibling = kNone;
    int shorter = kRoot;  // the longest proper suffix that is a state
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

// Limits of a request's stop strings. Their automaton takes 28 bytes per byte, so at most 0.5 MB
// per generation. Each string may cost a comparison per byte of text; with this many strings, that
// is less than a hundredth of the time that the smallest model takes for a token.
inline constexpr int kMaxStopStrings = 64;
inline constexpr int kMaxStopBytes = 16384;  // in total

// INVALID_ARGUMENT naming `stop` if there are too many strings or bytes, or a string is empty.
absl::Status CheckStopStrings(absl::Span<const std::string> stops);

// Parts that a text omits by default.
struct ShownInText {
  bool special_tokens;
  bool stop;                               // the stop string that ended the text
  absl::Span<const TokenId> of_special{};  // special tokens that are always shown
};

// The text of a generation, built token by token. The text is cut exactly before the first stop
// string (or after it, if it is shown) and returned only when it is certain: incomplete characters,
// and the longest suffix that may begin a stop string, are held back. Adding a token takes time
// proportional to its bytes. Thread-compatible.
class OutputText {
 public:
  using Shown = ShownInText;
  // The text continues that of `prompt`. A stop string that is completed by the first `min_tokens`
  // tokens is ordinary text. `tokenizer` must outlive this object.
  OutputText(const Tokenizer* tokenizer, absl::Span<const TokenId> prompt,
             absl::Span<const std::string> stops, int min_tokens = 0,
             Shown shown = {.special_tokens = false, .stop = false});

  // Adds a token. Returns false if the text has reached a stop string; it does not grow after that.
  bool Append(TokenId token);
  // Ends the generation: releases the text that was held back.
  void Finish();

  const std::string& text() const { return text_; }  // all text released so far

 private:
  bool AppendText(std::string_view piece, bool is_last);

  std::unique_ptr<Detokenizer> detokenizer_;
  StopAutomaton stops_;
  int min_tokens_ = 0;
  bool shows_stop_ = false;
  int num_tokens_ = 0;
  std::string decoded_;
  std::string text_;  // the prefix of `decoded_` that was released
  bool stopped_ = false;
};

}  // namespace tandem

#endif  // TANDEM_ENGINE_OUTPUT_TEXT_H_
