#include "engine/stop_automaton.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace tandem {
namespace {

struct Ends {
  int match = 0;
  int beginning = 0;
};

// The definition.
Ends EndsOf(const std::string& text, const std::vector<std::string>& stops) {
  Ends ends;
  for (const std::string& stop : stops) {
    for (size_t length = 1; length <= std::min(stop.size(), text.size()); ++length) {
      if (text.compare(text.size() - length, length, stop, 0, length) != 0) continue;
      int& longest = length == stop.size() ? ends.match : ends.beginning;
      longest = std::max(longest, static_cast<int>(length));
    }
  }
  return ends;
}

TEST(StopAutomaton, EqualsTheDefinitionOnRandomTexts) {
  std::mt19937_64 random(1);
  const auto letters = [&](size_t most) {
    std::string text(1 + random() % most, 'a');
    for (char& c : text) c = static_cast<char>('a' + random() % 2);
    return text;
  };
  for (int trial = 0; trial < 500; ++trial) {
    std::vector<std::string> stops(random() % 5);
    for (std::string& stop : stops) stop = letters(7);
    StopAutomaton automaton(stops);
    const std::string text = letters(60);
    for (size_t size = 1; size <= text.size(); ++size) {
      automaton.Read(text[size - 1]);
      const Ends ends = EndsOf(text.substr(0, size), stops);
      ASSERT_EQ(automaton.match(), ends.match);
      ASSERT_EQ(automaton.beginning(), ends.beginning);
    }
  }
}

TEST(StopAutomaton, ReadsAnyBytes) {
  StopAutomaton automaton(std::vector<std::string>{std::string("\0\xff", 2)});
  for (const char byte : {'\xff', '\0', '\0', '\xff'}) automaton.Read(byte);
  EXPECT_EQ(automaton.match(), 2);
}

// Row 89 of the bug catalogue. A byte takes no more than two moves in the mean, of a comparison per
// string and one more each; whatever the strings are, and however long the text was before.
TEST(StopAutomaton, TakesStepsInProportionToTheText) {
  constexpr int kNumStops = 64;
  constexpr int kStopBytes = 256;
  constexpr int kTextBytes = 100000;
  std::vector<std::string> one_letter;
  std::vector<std::string> near_the_end;
  std::vector<std::string> beginnings;
  for (int i = 0; i < kNumStops; ++i) {
    const char own = static_cast<char>('b' + i);
    one_letter.push_back(std::string(kStopBytes - 1 - i, 'a') + own);
    near_the_end.push_back(std::string(kStopBytes - 1, 'a') + own);
    beginnings.push_back(own + std::string(kStopBytes - 1, 'a'));
  }
  std::string combs;
  while (combs.size() < kTextBytes) combs += std::string(kStopBytes - 1, 'a') + "z";
  for (const auto& stops : {one_letter, near_the_end, beginnings}) {
    for (const std::string& text :
         {std::string(kTextBytes, 'a'), std::string(kTextBytes, 'z'), combs}) {
      StopAutomaton automaton(stops);
      for (const char byte : text) automaton.Read(byte);
      EXPECT_LE(automaton.num_steps(),
                int64_t{2} * (kNumStops + 1) * static_cast<int>(text.size()));
    }
  }
}

}  // namespace
}  // namespace tandem
