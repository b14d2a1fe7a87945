#include "engine/stop_automaton.h"

#include <algorithm>

#include "base/check.h"

namespace tandem {

StopAutomaton::StopAutomaton(absl::Span<const std::string> stops) : states_(1) {
  for (const std::string& stop : stops) Add(stop);
  // Shorter states first: what a state says is said of its ends already.
  std::vector<int> order = {kRoot};
  for (size_t i = 0; i < order.size(); ++i) {
    const int parent = order[i];
    for (int child = states_[parent].first_child; child != kNone;
         child = states_[child].next_sibling) {
      State& state = states_[child];
      if (parent != kRoot) state.shorter = Next(states_[parent].shorter, state.byte);
      const State& shorter = states_[state.shorter];
      state.match = std::max(state.match, shorter.match);
      state.beginning = state.first_child != kNone ? state.length : shorter.beginning;
      order.push_back(child);
    }
  }
  num_steps_ = 0;
}

void StopAutomaton::Read(char byte) { state_ = Next(state_, byte); }

int StopAutomaton::Next(int state, char byte) {
  for (; state != kRoot; state = states_[state].shorter) {
    if (const int child = ChildOf(state, byte); child != kNone) return child;
  }
  return std::max(ChildOf(kRoot, byte), kRoot);
}

int StopAutomaton::ChildOf(int state, char byte) {
  ++num_steps_;
  int child = states_[state].first_child;
  for (; child != kNone && states_[child].byte != byte; child = states_[child].next_sibling) {
    ++num_steps_;
  }
  return child;
}

void StopAutomaton::Add(const std::string& stop) {
  TANDEM_CHECK(!stop.empty());
  int state = kRoot;
  for (const char byte : stop) {
    int child = ChildOf(state, byte);
    if (child == kNone) {
      child = static_cast<int>(states_.size());
      states_.push_back({.byte = byte,
                         .length = states_[state].length + 1,
                         .next_sibling = states_[state].first_child});
      states_[state].first_child = child;
    }
    state = child;
  }
  states_[state].match = states_[state].length;
}

}  // namespace tandem
