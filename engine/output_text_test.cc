#include "engine/output_text.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tandem/field_error.h"
#include "tandem/tokenizer.h"
#include "tests/folder_testing.h"

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

// Row 89 of the bug catalogue. A byte takes at most two transitions on average, each with one
// comparison per string and one more, whatever the strings are and however long the text is.
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

// Returns the character with which byte-level tokenizers (GPT-2) write a byte: visible Latin-1
// characters are themselves, the others are numbered from U+0100 on.
std::string WrittenByte(unsigned char byte) {
  const auto is_visible = [](int b) {
    return (33 <= b && b <= 126) || (161 <= b && b <= 172) || 174 <= b;
  };
  int code = byte;
  if (!is_visible(byte)) {
    code = 256;
    for (int b = 0; b < byte; ++b) code += !is_visible(b);
  }
  if (code < 128) {
    const std::string character(1, static_cast<char>(code));
    return character == "\"" || character == "\\" ? "\\" + character : character;
  }
  return {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
}

// A tokenizer with a token for each of the 256 bytes, a token for each string passed to the
// constructor, and the special token <end>.
class Words {
 public:
  explicit Words(const std::vector<std::string>& strings) {
    std::vector<std::string> entries;
    const auto add = [&](const std::string& text) {
      std::string written;
      for (const char c : text) written += WrittenByte(static_cast<unsigned char>(c));
      const TokenId id = static_cast<TokenId>(ids_.size());
      if (!ids_.emplace(text, id).second) return;
      entries.push_back(absl::StrCat("\"", written, "\": ", id));
    };
    for (int byte = 0; byte < 256; ++byte) add(std::string(1, static_cast<char>(byte)));
    for (const std::string& text : strings) add(text);
    end_ = static_cast<TokenId>(ids_.size());
    const TestFolder folder;
    const std::string path = folder.Write(
        "tokenizer.json", absl::StrCat(
                              R"({"version": "1.0", "truncation": null, "padding": null,
      "added_tokens": [{"id": )",
                              end_, R"(, "content": "<end>", "single_word": false, "lstrip": false,
        "rstrip": false, "normalized": false, "special": true}],
      "normalizer": null,
      "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
        "use_regex": true},
      "post_processor": null,
      "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true,
        "use_regex": true},
      "model": {"type": "BPE", "dropout": null, "unk_token": null,
        "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false,
        "byte_fallback": false, "ignore_merges": false, "vocab": {)",
                              absl::StrJoin(entries, ", "), R"(}, "merges": []}})"));
    auto tokenizer = Tokenizer::Load(path);
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
    if (tokenizer.ok()) tokenizer_ = *std::move(tokenizer);
  }

  TokenId Id(const std::string& text) const { return ids_.at(text); }
  TokenId end() const { return end_; }
  const Tokenizer* tokenizer() const { return tokenizer_.get(); }
  OutputText Text(const std::vector<std::string>& stop, int min_tokens = 0) const {
    return OutputText(tokenizer(), {}, stop, min_tokens);
  }

 private:
  std::map<std::string, TokenId> ids_;
  TokenId end_ = 0;
  std::unique_ptr<Tokenizer> tokenizer_;
};

std::vector<std::string> Substrings(const std::string& text) {
  std::vector<std::string> all;
  for (size_t begin = 0; begin < text.size(); ++begin) {
    for (size_t size = 1; begin + size <= text.size(); ++size) {
      all.push_back(text.substr(begin, size));
    }
  }
  return all;
}

// All ways to cut `text` into pieces.
std::vector<std::vector<std::string>> Splits(const std::string& text) {
  std::vector<std::vector<std::string>> splits;
  for (unsigned cuts = 0; cuts < 1u << (text.size() - 1); ++cuts) {
    std::vector<std::string> pieces(1);
    for (size_t i = 0; i < text.size(); ++i) {
      if (i > 0 && (cuts >> (i - 1) & 1) != 0) pieces.emplace_back();
      pieces.back() += text[i];
    }
    splits.push_back(std::move(pieces));
  }
  return splits;
}

struct Cut {
  std::string text;
  bool stopped = false;
};

// The definition: the text grows piece by piece until it contains a stop string that ends after the
// first `min_tokens` pieces, and is cut before the first of these.
Cut CutPlainly(const std::vector<std::string>& pieces, const std::vector<std::string>& stop,
               int min_tokens = 0) {
  std::string text;
  size_t early_size = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    text += pieces[i];
    if (static_cast<int>(i) < min_tokens) early_size = text.size();
    size_t cut = std::string::npos;
    for (const std::string& s : stop) {
      for (size_t at = 0; at + s.size() <= text.size(); ++at) {
        if (at + s.size() > early_size && text.substr(at, s.size()) == s) cut = std::min(cut, at);
      }
    }
    if (cut != std::string::npos) return {text.substr(0, cut), true};
  }
  return {text, false};
}

// Feeds `pieces` as tokens and compares the result with the definition. Every intermediate text
// must be a prefix of the final text.
void ExpectCutPlainly(const Words& words, const std::vector<std::string>& pieces,
                      const std::vector<std::string>& stop, int min_tokens = 0) {
  SCOPED_TRACE(absl::StrCat("pieces ", absl::StrJoin(pieces, "|"), " stop ",
                            absl::StrJoin(stop, "|"), " min ", min_tokens));
  const Cut want = CutPlainly(pieces, stop, min_tokens);
  OutputText text = words.Text(stop, min_tokens);
  bool goes_on = true;
  std::vector<std::string> let_out;
  for (const std::string& piece : pieces) {
    if (!goes_on) break;
    goes_on = text.Append(words.Id(piece));
    let_out.push_back(text.text());
  }
  EXPECT_EQ(!goes_on, want.stopped);
  text.Finish();
  EXPECT_EQ(text.text(), want.text);
  for (const std::string& earlier : let_out) {
    EXPECT_EQ(earlier, want.text.substr(0, earlier.size()));
  }
}

TEST(OutputText, ReleasesEveryTokenAtOnceWithoutStopStrings) {
  const Words words({"Once ", "upon"});
  OutputText text = words.Text({});
  EXPECT_EQ(text.text(), "");
  EXPECT_TRUE(text.Append(words.Id("Once ")));
  EXPECT_EQ(text.text(), "Once ");
  EXPECT_TRUE(text.Append(words.Id("upon")));
  EXPECT_EQ(text.text(), "Once upon");
  text.Finish();
  EXPECT_EQ(text.text(), "Once upon");
}

TEST(OutputText, FindsAStopStringHoweverItIsSplit) {
  for (const std::string text : {"xxSTOPyy", "STOPyy", "xxSTOP", "STOP", "SSTOSTOP", "STSTOPPP"}) {
    const Words words(Substrings(text));
    for (const std::vector<std::string>& pieces : Splits(text)) {
      ExpectCutPlainly(words, pieces, {"STOP"});
      if (HasFailure()) return;
    }
  }
}

TEST(OutputText, FindsStopStringsThatOverlapThemselvesAndEachOther) {
  const std::vector<std::vector<std::string>> stops = {
      {"aa"}, {"aab"}, {"aabaa"}, {"abab", "ba"}, {"aabab", "b"}, {"bab", "abba"}, {"b", "aab"}};
  for (const std::string text : {"aaaabaab", "abababba", "baabaaba", "abbaabab", "aaaaaaaa"}) {
    const Words words(Substrings(text));
    for (const std::vector<std::string>& pieces : Splits(text)) {
      for (const std::vector<std::string>& stop : stops) ExpectCutPlainly(words, pieces, stop);
      if (HasFailure()) return;
    }
  }
}

TEST(OutputText, CutsBeforeTheFirstOfSeveral) {
  const Words words({"one two three"});
  OutputText text = words.Text({"three", "two"});
  EXPECT_FALSE(text.Append(words.Id("one two three")));
  EXPECT_EQ(text.text(), "one ");
}

// The text ends with the stop string that is complete first.
TEST(OutputText, ShowsTheStopStringIfAsked) {
  const Words words({"one two three"});
  const OutputText::Shown shown = {.special_tokens = false, .stop = true};
  const std::vector<std::string> stops = {"three", "two", "wo th"};
  OutputText text(words.tokenizer(), {}, stops, 0, shown);
  EXPECT_FALSE(text.Append(words.Id("one two three")));
  text.Finish();
  EXPECT_EQ(text.text(), "one two");
}

TEST(OutputText, ShowsSpecialTokensIfAsked) {
  const Words words({});
  OutputText plain = words.Text({});
  EXPECT_TRUE(plain.Append(words.end()));
  EXPECT_EQ(plain.text(), "");
  OutputText shown(words.tokenizer(), {}, {}, 0, {.special_tokens = true, .stop = false});
  EXPECT_TRUE(shown.Append(words.end()));
  EXPECT_EQ(shown.text(), "<end>");
  const TokenId end = words.end();
  OutputText this_one(words.tokenizer(), {}, {}, 0,
                      {.special_tokens = false, .stop = false, .of_special = {&end, 1}});
  EXPECT_TRUE(this_one.Append(end));
  EXPECT_EQ(this_one.text(), "<end>");
}

TEST(OutputText, HoldsBackTheBeginningOfAStopString) {
  const Words words({"ab"});
  OutputText text = words.Text({"bcd"});
  EXPECT_TRUE(text.Append(words.Id("ab")));
  EXPECT_EQ(text.text(), "a");
  EXPECT_TRUE(text.Append(words.Id("c")));
  EXPECT_EQ(text.text(), "a");
  // It is not a stop string after all, but another may begin.
  EXPECT_TRUE(text.Append(words.Id("b")));
  EXPECT_EQ(text.text(), "abc");
  EXPECT_TRUE(text.Append(words.Id("x")));
  EXPECT_EQ(text.text(), "abcbx");
}

TEST(OutputText, HoldsBackOnlyTextThatMayBeginAStopString) {
  const Words words({"aab"});
  OutputText text = words.Text({"abx", "aaa"});
  EXPECT_TRUE(text.Append(words.Id("aab")));
  EXPECT_EQ(text.text(), "a");
}

TEST(OutputText, FinishReleasesTextThatIsHeldBack) {
  const Words words({"ab"});
  OutputText text = words.Text({"bcd"});
  EXPECT_TRUE(text.Append(words.Id("ab")));
  text.Finish();
  EXPECT_EQ(text.text(), "ab");
  text.Finish();
  EXPECT_EQ(text.text(), "ab");
}

TEST(OutputText, NothingFollowsAStopString) {
  const Words words({});
  OutputText text = words.Text({"b"});
  EXPECT_TRUE(text.Append(words.Id("a")));
  EXPECT_FALSE(text.Append(words.Id("b")));
  EXPECT_FALSE(text.Append(words.Id("c")));
  text.Finish();
  EXPECT_EQ(text.text(), "a");
}

TEST(OutputText, HoldsBackUnfinishedCharacters) {
  const std::string bear = "\xF0\x9F\x90\xBB";
  const Words words({});
  OutputText text = words.Text({});
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(text.Append(words.Id(bear.substr(i, 1))));
    EXPECT_EQ(text.text(), "");
  }
  EXPECT_TRUE(text.Append(words.Id(bear.substr(3, 1))));
  EXPECT_EQ(text.text(), bear);
}

TEST(OutputText, UnfinishedCharactersBecomeReplacementsAtTheEnd) {
  const Words words({});
  OutputText text = words.Text({});
  EXPECT_TRUE(text.Append(words.Id("a")));
  EXPECT_TRUE(text.Append(words.Id("\xF0")));
  EXPECT_TRUE(text.Append(words.Id("\x9F")));
  EXPECT_EQ(text.text(), "a");
  text.Finish();
  EXPECT_EQ(text.text(), "a\xEF\xBF\xBD");
}

TEST(OutputText, FindsAStopStringOfManyBytesSplitInsideItsCharacters) {
  const std::string text = "o\xC3\xA9\xE2\x82\xACz";  // o, e with acute, euro sign, z
  const Words words(Substrings(text));
  for (const std::vector<std::string>& pieces : Splits(text)) {
    OutputText output = words.Text({"\xC3\xA9\xE2\x82\xAC"});
    bool goes_on = true;
    for (const std::string& piece : pieces) {
      if (goes_on) goes_on = output.Append(words.Id(piece));
      EXPECT_TRUE(output.text().empty() || output.text() == "o");
    }
    EXPECT_FALSE(goes_on);
    EXPECT_EQ(output.text(), "o");
  }
}

TEST(OutputText, SpecialTokensHaveNoText) {
  const Words words({});
  OutputText text = words.Text({"ab", "<end>"});
  EXPECT_TRUE(text.Append(words.Id("a")));
  EXPECT_TRUE(text.Append(words.end()));
  EXPECT_EQ(text.text(), "");
  EXPECT_FALSE(text.Append(words.Id("b")));
  EXPECT_EQ(text.text(), "");
}

TEST(OutputText, ContinuesAfterThePromptWithoutRepeatingIt) {
  const Words words({"the pro", "mpt"});
  const std::vector<TokenId> prompt = {words.Id("the pro"), words.Id("mpt")};
  const std::vector<std::string> stop = {"tx", "prompt"};
  OutputText text(words.tokenizer(), prompt, stop);
  // Only the output is searched for stop strings.
  EXPECT_TRUE(text.Append(words.Id("x")));
  EXPECT_EQ(text.text(), "x");
}

TEST(OutputText, StopStringsInTheFirstMinTokensArePartOfTheText) {
  const Words words({"ab", "c", "d", "a", "b"});
  for (int min_tokens = 0; min_tokens <= 5; ++min_tokens) {
    ExpectCutPlainly(words, {"c", "ab", "d", "ab", "c"}, {"ab"}, min_tokens);
    // Begins within the first tokens and is completed after them.
    ExpectCutPlainly(words, {"c", "a", "b", "d", "c"}, {"ab"}, min_tokens);
    // Complete and held back, because a longer one may follow.
    ExpectCutPlainly(words, {"ab", "c", "d"}, {"ab", "abcc"}, min_tokens);
  }
  OutputText text = words.Text({"ab", "abcc"}, 1);
  EXPECT_TRUE(text.Append(words.Id("ab")));
  EXPECT_EQ(text.text(), "");
  EXPECT_TRUE(text.Append(words.Id("d")));
  EXPECT_EQ(text.text(), "abd");
  EXPECT_FALSE(text.Append(words.Id("ab")));
  EXPECT_EQ(text.text(), "abd");
}

// Row 89 of the bug catalogue: stop strings of a request are limited.
TEST(StopStrings, AreRefusedBeyondTheirLimits) {
  const std::string longest(kMaxStopBytes, 'x');
  std::vector<std::string> most(kMaxStopStrings, "x");
  EXPECT_TRUE(CheckStopStrings({}).ok());
  EXPECT_TRUE(CheckStopStrings(most).ok());
  EXPECT_TRUE(CheckStopStrings({&longest, 1}).ok());
  most.emplace_back("y");
  EXPECT_EQ(CheckStopStrings(most).message(), "stop: must have at most 64 strings, got 65");
  const std::vector<std::string> too_long = {longest, "y"};
  EXPECT_EQ(CheckStopStrings(too_long).message(),
            "stop: must have at most 16384 bytes in total, got 16385");
  const std::vector<std::string> empty = {"x", ""};
  EXPECT_EQ(FieldOf(CheckStopStrings(empty)), "stop");
}

TEST(OutputText, EqualsTheDefinitionOnRandomTexts) {
  std::mt19937_64 random(20240607);
  const auto uniform = [&](int low, int high) {
    return std::uniform_int_distribution(low, high)(random);
  };
  const auto letters = [&](int size) {
    std::string text;
    for (int i = 0; i < size; ++i) text += static_cast<char>('a' + uniform(0, 1 + uniform(0, 1)));
    return text;
  };
  std::vector<std::string> strings;  // all of up to four letters
  for (int size = 1; size <= 4; ++size) {
    for (int code = 0; code < std::pow(3, size); ++code) {
      std::string text;
      for (int i = 0, rest = code; i < size; ++i, rest /= 3) {
        text += static_cast<char>('a' + rest % 3);
      }
      strings.push_back(text);
    }
  }
  const Words words(strings);
  int num_stopped = 0;
  constexpr int kTrials = 4000;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<std::string> pieces;
    for (int i = uniform(1, 12); i > 0; --i) pieces.push_back(letters(uniform(1, 4)));
    std::vector<std::string> stop;
    for (int i = uniform(1, 3); i > 0; --i) stop.push_back(letters(uniform(1, 8)));
    const int min_tokens = std::max(0, uniform(-6, 6));
    ExpectCutPlainly(words, pieces, stop, min_tokens);
    num_stopped += CutPlainly(pieces, stop, min_tokens).stopped;
    if (HasFailure()) return;
  }
  EXPECT_GT(num_stopped, kTrials / 4);
  EXPECT_LT(num_stopped, kTrials * 9 / 10);
}

}  // namespace

}  // namespace tandem
