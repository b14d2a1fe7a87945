#include "text/chat/thinking_constraint.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/source_path_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tandem/tokenizer.h"

namespace tandem {
namespace {

using Start = ReasoningStart;
using Words = std::vector<std::string>;
using testing::ElementsAre;
using testing::IsEmpty;

// A vocabulary of few words, in which the end marker is the token "</a>" or "</", "a", ">".
const Words kWords = {"x", "\n", "<a>", "</a>", "</", "a", ">", "a>", "\xe2", "\x82", "\xac"};

class ThinkingText {
 public:
  struct Limit {
    int max_tokens = 0;
    int window = 0;
    Start start = Start::kInside;
    bool has_marker_token = true;
    std::shared_ptr<const TokenConstraint> inner{};
  };
  explicit ThinkingText(const Limit& limit)
      : constraint_({.markers = {.format = {.begin = "<a>", .end = "</a>"}, .start = limit.start},
                     .max_tokens = limit.max_tokens,
                     .window = limit.window,
                     .vocab_size = static_cast<int>(kWords.size()),
                     .text_of = [](TokenId id) -> std::string_view { return kWords[id]; },
                     .closings = {limit.has_marker_token ? Ids({"</a>"}) : Ids({"</", "a", ">"}),
                                  Ids({"</a>"}), Ids({"a", ">"}), Ids({">"})}},
                    limit.inner),
        state_(constraint_.Begin()) {}

  static TokenId IdOf(const std::string& word) {
    return static_cast<TokenId>(std::find(kWords.begin(), kWords.end(), word) - kWords.begin());
  }
  static std::vector<TokenId> Ids(const Words& words) {
    std::vector<TokenId> ids;
    for (const std::string& word : words) ids.push_back(IdOf(word));
    return ids;
  }

  bool Accept(const std::string& word) { return state_->Accept(IdOf(word)); }
  void AcceptAll(const Words& words) {
    for (const std::string& word : words) EXPECT_TRUE(Accept(word)) << word;
  }
  // The words that may come next; nothing if all may.
  Words Forced() {
    const absl::Span<const uint32_t> mask = state_->Allowed();
    Words allowed;
    for (size_t i = 0; i < kWords.size(); ++i) {
      if ((mask[i / 32] >> (i % 32) & 1) != 0) allowed.push_back(kWords[i]);
    }
    return allowed.size() == kWords.size() ? Words() : allowed;
  }
  Words ForcedTokens() {
    Words words;
    for (const TokenId id : state_->ForcedTokens()) words.push_back(kWords[id]);
    return words;
  }
  ConstraintState* state() { return state_.get(); }

 private:
  const ThinkingConstraint constraint_;
  const std::unique_ptr<ConstraintState> state_;
};

TEST(ThinkingConstraint, ForcesTheEndMarkerOnce) {
  ThinkingText text({.max_tokens = 2});
  text.AcceptAll({"x"});
  EXPECT_THAT(text.Forced(), IsEmpty());
  text.AcceptAll({"x"});
  EXPECT_THAT(text.Forced(), ElementsAre("</a>"));
  EXPECT_THAT(text.ForcedTokens(), ElementsAre("</a>"));
  EXPECT_FALSE(text.Accept("x"));
  text.AcceptAll({"</a>", "x", "<a>", "x", "x", "x", "x"});
  EXPECT_THAT(text.Forced(), IsEmpty());
  EXPECT_THAT(text.ForcedTokens(), IsEmpty());
}

TEST(ThinkingConstraint, WaitsForALineEndWithinTheWindow) {
  ThinkingText text({.max_tokens = 1, .window = 2});
  text.AcceptAll({"x", "x"});
  EXPECT_THAT(text.Forced(), IsEmpty());
  text.AcceptAll({"\n"});
  EXPECT_THAT(text.Forced(), ElementsAre("</a>"));
  ThinkingText without({.max_tokens = 1, .window = 2});
  without.AcceptAll({"x", "x", "x"});
  EXPECT_THAT(without.Forced(), ElementsAre("</a>"));
  ThinkingText at_once({.max_tokens = 1, .window = 2});
  at_once.AcceptAll({"\n"});
  EXPECT_THAT(at_once.Forced(), ElementsAre("</a>"));
}

TEST(ThinkingConstraint, CountsFromTheFirstMarkerOn) {
  ThinkingText none({.start = Start::kInside});
  EXPECT_THAT(none.Forced(), ElementsAre("</a>"));
  ThinkingText begins({.start = Start::kMayBegin});
  begins.AcceptAll({"\n"});
  EXPECT_THAT(begins.Forced(), IsEmpty());
  begins.AcceptAll({"<a>"});
  EXPECT_THAT(begins.Forced(), ElementsAre("</a>"));
  for (const Start start : {Start::kNone, Start::kMayBegin}) {
    ThinkingText answer({.start = start});
    answer.AcceptAll({"x", "<a>", "x"});
    EXPECT_THAT(answer.Forced(), IsEmpty());
  }
  ThinkingText own({.max_tokens = 3});
  own.AcceptAll({"x", "</", "a>", "x", "x", "x"});
  EXPECT_THAT(own.Forced(), IsEmpty());
}

TEST(ThinkingConstraint, CompletesAMarkerThatHasBegun) {
  ThinkingText text({.max_tokens = 2, .has_marker_token = false});
  text.AcceptAll({"x", "</"});
  EXPECT_THAT(text.ForcedTokens(), ElementsAre("a", ">"));
  EXPECT_FALSE(text.Accept("a>"));
  text.AcceptAll({"a"});
  EXPECT_THAT(text.Forced(), ElementsAre(">"));
  text.AcceptAll({">", "x"});
  EXPECT_THAT(text.Forced(), IsEmpty());
  ThinkingText whole({.max_tokens = 1, .has_marker_token = false});
  whole.AcceptAll({"x"});
  EXPECT_THAT(whole.ForcedTokens(), ElementsAre("</", "a", ">"));
  whole.AcceptAll({"</"});
  EXPECT_THAT(whole.ForcedTokens(), ElementsAre("a", ">"));
}

TEST(ThinkingConstraint, LetsACharacterEnd) {
  ThinkingText text({.max_tokens = 1});
  text.AcceptAll({"\xe2"});
  EXPECT_THAT(text.Forced(), IsEmpty());
  text.AcceptAll({"\x82", "\xac"});
  EXPECT_THAT(text.Forced(), ElementsAre("</a>"));
  ThinkingText never_ends({.max_tokens = 1});
  never_ends.AcceptAll({"\xe2", "\xe2", "\xe2", "\xe2"});
  EXPECT_THAT(never_ends.Forced(), ElementsAre("</a>"));
}

TEST(ThinkingConstraint, TokensCanBeUndoneInEveryPlace) {
  const Words words = {"\n", "<a>", "x", "</", "x", "\n", "</a>", "x"};
  ThinkingText text({.max_tokens = 4, .start = Start::kMayBegin});
  std::vector<Words> before;
  for (const std::string& word : words) {
    before.push_back(text.Forced());
    text.AcceptAll({word});
  }
  const std::unique_ptr<ConstraintState> clone = text.state()->Clone();
  for (size_t i = words.size(); i-- > 0;) {
    text.state()->Undo();
    EXPECT_EQ(text.Forced(), before[i]) << i;
  }
  text.AcceptAll(words);
  text.state()->Commit();
  EXPECT_THAT(text.Forced(), IsEmpty());
  clone->Undo();
  EXPECT_TRUE(clone->Accept(ThinkingText::IdOf("x")));
}

// No mask within num_free() tokens forbids a token, whatever the tokens are.
TEST(ThinkingConstraint, PositionsThatAreFreeForbidNothing) {
  for (const Start start : {Start::kInside, Start::kMayBegin, Start::kNone}) {
    ThinkingText text({.max_tokens = 2, .window = 1, .start = start});
    const auto visit = [&](auto& self, int depth, int free) -> void {
      free = std::max(free, text.state()->num_free());
      if (free > 0) {
        EXPECT_THAT(text.Forced(), IsEmpty());
      }
      if (depth == 0) return;
      for (const std::string& word : kWords) {
        if (!text.Accept(word)) continue;
        self(self, depth - 1, free - 1);
        text.state()->Undo();
      }
    };
    visit(visit, 4, 0);
  }
}

// Allows only x.
class OnlyX final : public TokenConstraint, public ConstraintState {
 public:
  std::unique_ptr<ConstraintState> Begin() const override { return std::make_unique<OnlyX>(); }
  std::unique_ptr<ConstraintState> Clone() const override { return std::make_unique<OnlyX>(); }
  bool Accept(TokenId token) override { return token == 0; }
  void Undo() override {}
  absl::Span<const uint32_t> Allowed() override { return {&kMask, 1}; }
  std::string Forced() override { return "x"; }

 private:
  static constexpr uint32_t kMask = 1;
};

TEST(ThinkingConstraint, KeepsToAnInnerConstraint) {
  ThinkingText text({.max_tokens = 1, .inner = std::make_shared<const OnlyX>()});
  EXPECT_THAT(text.Forced(), ElementsAre("x"));
  EXPECT_EQ(text.state()->Forced(), "x");
  EXPECT_EQ(text.state()->num_free(), 0);
  EXPECT_FALSE(text.Accept("\n"));
  text.AcceptAll({"x"});
  EXPECT_EQ(text.state()->Forced(), "");
  EXPECT_EQ(text.state()->Allowed()[0], 0);  // the marker is not x
  EXPECT_FALSE(text.Accept("</a>"));
}

// ---- With a tokenizer ----

TEST(ThinkingConstraint, WritesMarkersWithAnyVocabulary) {
  const auto tokenizer = *Tokenizer::Load(SourcePath("models/storyteller-7m"));
  const auto constraint =
      ThinkingConstraint::Make({.max_tokens = 0, .markers = {.start = Start::kInside}}, *tokenizer,
                               tokenizer->vocab_size(), nullptr)
          .value();
  const std::unique_ptr<ConstraintState> state = constraint->Begin();
  std::string text;
  for (const TokenId id : state->ForcedTokens()) {
    EXPECT_TRUE(state->Accept(id));
    text += tokenizer->TextOf(id, /*is_first=*/false)->bytes;
  }
  EXPECT_EQ(text, "</think>");
  EXPECT_THAT(state->ForcedTokens(), IsEmpty());
}

TEST(ThinkingConstraint, RefusesBudgetsThatItCannotKeep) {
  const auto error_of = [](const ThinkingBudget& budget, const Tokenizer& tokenizer) {
    return std::string(ThinkingConstraint::Make(budget, tokenizer, tokenizer.vocab_size(), nullptr)
                           .status()
                           .message());
  };
  const auto story = *Tokenizer::Load(SourcePath("models/storyteller-7m"));
  EXPECT_EQ(error_of({.max_tokens = -1}, *story),
            "max_thinking_tokens: must be at least 0, got -1");
  constexpr char kFile[] = R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}})";
  const auto letters = *Tokenizer::Parse(kFile, "", "test");
  EXPECT_EQ(error_of({}, *letters),
            "max_thinking_tokens: the model's vocabulary cannot write </think>, which ends its "
            "reasoning");
}

TEST(ThinkingWindow, IsAQuarterOfTheBudgetUpToALimit) {
  EXPECT_EQ(ThinkingWindow(0), 0);
  EXPECT_EQ(ThinkingWindow(3), 0);
  EXPECT_EQ(ThinkingWindow(40), 10);
  EXPECT_EQ(ThinkingWindow(1000), 32);
}

}  // namespace
}  // namespace tandem
