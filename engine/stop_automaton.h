#ifndef TANDEM_ENGINE_STOP_AUTOMATON_H_
#define TANDEM_ENGINE_STOP_AUTOMATON_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"

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
  // The length of the longest end of the text that a stop string begins with and goes on behind.
  int beginning() const { return states_[state_].beginning; }
  // States looked at since the beginning, for tests of what a byte costs.
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

}  // namespace tandem

#endif  // TANDEM_ENGINE_STOP_AUTOMATON_H_
