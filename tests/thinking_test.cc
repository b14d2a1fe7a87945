// Output under a thinking budget equals that of plain decoding under the same budget, with every
// drafter, draft length, rule and batch.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/engine_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tandem/reasoning.h"
#include "tandem/tokenizer.h"
#include "text/chat/thinking_constraint.h"
#include "text/constraint/grammar_engine.h"

namespace tandem {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// Stories have these texts often, so drafts contain them, end in them and go past them.
constexpr std::string_view kEnds[] = {" was", " little girl", "</think>"};
constexpr int kBudgets[] = {0, 1, 2, 5, 12, 40};
constexpr int kMaxTokens = 48;

EngineOptions Options() {
  return CpuOptionsFor(ShippedModelPath("storyteller-7m"), ShippedModelPath("storyteller-1m"));
}

Request Story(std::string_view end, int max_thinking_tokens, uint64_t seed) {
  Request request{.prompt = "Once upon a time", .max_tokens = kMaxTokens, .seed = seed};
  if (seed % 2 == 0) request.sampling.temperature = 0.0f;
  request.thinking_budget = {
      .max_tokens = max_thinking_tokens,
      .markers = {.format = {.begin = "<think>", .end = end}, .start = ReasoningStart::kInside}};
  return request;
}

std::vector<Request> Stories() {
  std::vector<Request> requests;
  for (const std::string_view end : kEnds) {
    for (const int budget : kBudgets) {
      for (uint64_t seed = 0; seed < 2; ++seed) requests.push_back(Story(end, budget, seed));
    }
  }
  requests.back().sampling.frequency_penalty = 0.5f;
  requests[3].logprobs.num_top = 1;
  requests[4].sampling.min_tokens = kMaxTokens;
  return requests;
}

std::vector<Completion> PlainStories() {
  EngineOptions options = Options();
  options.draft_tokens = 0;
  return GenerateAll(MakeEngine(options).get(), Stories());
}

// The number of tokens up to the end of the marker; all if it is not there.
int NumReasoningTokens(const Request& request, const Completion& completion,
                       const Tokenizer& tokenizer) {
  const auto detokenizer = Detokenizer::New(&tokenizer, {}, /*skip_special=*/true);
  return static_cast<int>(CountReasoningTokens(request.thinking_budget->markers, detokenizer.get(),
                                               completion.token_ids));
}

void ExpectWithinBudget(const Request& request, const Completion& completion,
                        const Tokenizer& tokenizer) {
  const ThinkingBudget& budget = *request.thinking_budget;
  const auto marker = tokenizer.Encode(budget.markers.format.end, SpecialTokens::kPlain);
  const int most =
      budget.max_tokens + ThinkingWindow(budget.max_tokens) + static_cast<int>(marker->size());
  if (most > kMaxTokens) return;
  EXPECT_LE(NumReasoningTokens(request, completion, tokenizer), most) << completion.text;
  EXPECT_THAT(completion.text, HasSubstr(std::string(budget.markers.format.end)));
}

TEST(ThinkingBudget, WritesTheTextOfPlainDecoding) {
  const std::vector<Request> requests = Stories();
  const std::vector<Completion> plain = PlainStories();
  const auto tokenizer = *Tokenizer::Load(ShippedModelPath("storyteller-7m"));
  for (size_t i = 0; i < requests.size(); ++i) {
    ExpectWithinBudget(requests[i], plain[i], *tokenizer);
  }
  struct Way {
    DrafterKind drafter;
    int k;
    int max_batch;
  };
  for (const Way& way :
       {Way{DrafterKind::kModel, 1, 8}, Way{DrafterKind::kModel, 4, 8},
        Way{DrafterKind::kNgram, 3, 1}, Way{DrafterKind::kModelAndNgram, kAutoDraftTokens, 3},
        Way{DrafterKind::kModelAndNgram, 16, 8}}) {
    EngineOptions options = Options();
    options.drafter = way.drafter;
    options.draft_tokens = way.k;
    options.max_batch = way.max_batch;
    const std::vector<Completion> found = GenerateAll(MakeEngine(options).get(), Stories());
    for (size_t i = 0; i < plain.size(); ++i) {
      SCOPED_TRACE(absl::StrCat("k ", way.k, ", request ", i));
      ExpectSameOutput(found[i], plain[i]);
      ExpectConsistent(found[i]);
    }
  }
}

// Rules that preserve only the law give other output; greedy output is the same under all.
TEST(ThinkingBudget, HoldsUnderEveryRule) {
  const std::vector<Request> requests = Stories();
  const std::vector<Completion> plain = PlainStories();
  const auto tokenizer = *Tokenizer::Load(ShippedModelPath("storyteller-7m"));
  for (const AcceptanceRule rule : {AcceptanceRule::kBlock, AcceptanceRule::kToken}) {
    EngineOptions options = Options();
    options.draft_tokens = 6;
    options.verifier = rule;
    const std::vector<Completion> found = GenerateAll(MakeEngine(options).get(), Stories());
    for (size_t i = 0; i < requests.size(); ++i) {
      ExpectWithinBudget(requests[i], found[i], *tokenizer);
      if (requests[i].sampling.is_greedy()) ExpectSameOutput(found[i], plain[i]);
    }
  }
}

// Given drafts cross the border in every place: the marker is before, at and after it, or absent.
TEST(ThinkingBudget, CutsDraftsThatCrossTheBorder) {
  const std::unique_ptr<Engine> engine = MakeEngine(Options());
  for (const int budget : kBudgets) {
    for (uint64_t seed = 0; seed < 2; ++seed) {
      Request request = Story(" was", budget, seed);
      Request without = request;
      without.thinking_budget.reset();
      without.draft_tokens = 0;
      request.draft_tokens = 0;
      const Completion plain = Generate(engine.get(), request);
      const std::string free = Generate(engine.get(), without).text;
      request.draft_tokens = 8;
      for (const std::string& predicted :
           {plain.text, free, " was" + free, std::string(" was was was was was was"),
            plain.text.substr(0, plain.text.find(" was") + 4)}) {
        request.prediction = predicted;
        for (const AcceptanceRule rule :
             {AcceptanceRule::kExactMatch, AcceptanceRule::kBlock, AcceptanceRule::kToken}) {
          request.verifier = rule;
          const bool is_same = rule == AcceptanceRule::kExactMatch || seed == 0;
          const Completion found = Generate(engine.get(), request);
          if (is_same) ExpectSameOutput(found, plain);
          ExpectWithinBudget(request, found, engine->tokenizer());
        }
      }
    }
  }
}

// Tokens of the marker do not need a pass each.
TEST(ThinkingBudget, DraftsTheMarker) {
  EngineOptions options = Options();
  options.draft.clear();
  options.drafter = DrafterKind::kNgram;
  options.draft_tokens = 16;
  const Completion done = Generate(MakeEngine(options).get(), Story("</think>", 0, 2));
  EXPECT_THAT(done.text, StartsWith("</think>"));
  EXPECT_GT(done.stats.Of(DraftSource::kForced).accepted, 1);
}

TEST(ThinkingBudget, IsUnlimitedAfterItsEnd) {
  const std::unique_ptr<Engine> engine = MakeEngine(Options());
  Request request = Story(" was", 0, 1);
  request.thinking_budget->markers.start = ReasoningStart::kNone;
  Request without = request;
  without.thinking_budget.reset();
  ExpectSameOutput(Generate(engine.get(), request), Generate(engine.get(), without));
}

TEST(ThinkingBudget, ComesBeforeAConstraintOnTheAnswer) {
  if (!HasGrammarEngine()) GTEST_SKIP() << "this build has no grammar engine";
  Request request = Story("</think>", 6, 1);
  request.constraint = AfterReasoning(
      request.thinking_budget->markers,
      {.kind = OutputConstraint::Kind::kRegex, .text = "(yes|no), she (was|is) here[.]"});
  request.draft_tokens = 0;
  const std::unique_ptr<Engine> engine = MakeEngine(Options());
  const Completion plain = Generate(engine.get(), request);
  EXPECT_THAT(plain.text, testing::ContainsRegex("</think>\n*(yes|no), she (was|is) here[.]$"));
  EXPECT_EQ(plain.finish_reason, FinishReason::kStop);
  request.draft_tokens = 5;
  ExpectSameOutput(Generate(engine.get(), request), plain);
}

TEST(ThinkingBudget, RefusesNegativeBudgets) {
  const std::unique_ptr<Engine> engine = MakeEngine(Options());
  EXPECT_EQ(engine->Submit(Story("</think>", -1, 1)).status().message(),
            "max_thinking_tokens: must be at least 0, got -1");
}

}  // namespace
}  // namespace tandem
