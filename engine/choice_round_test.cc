#include "engine/choice_round.h"

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/engine_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tandem/tokenizer.h"
#include "verify/choice_scores.h"

namespace tandem {
namespace {

using testing::Each;
using testing::Eq;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

const std::vector<std::string>& Endings() {
  static const auto& endings =
      *new std::vector<std::string>{" was happy.",
                                    " was happy and sad.",
                                    " was",
                                    "",
                                    " went home and had a big, big dinner.",
                                    " said \"yes\"",
                                    "\n\n",
                                    " caf\u00e9"};
  return endings;
}

EngineOptions ShippedPair() {
  return CpuOptionsFor(ShippedModelPath("storyteller-7m"), ShippedModelPath("storyteller-1m"));
}

OutputConstraint ChoiceOf(std::vector<std::string> choices) {
  return {.kind = OutputConstraint::Kind::kChoice, .choices = std::move(choices)};
}

Request AskForChoice(std::vector<std::string> choices = Endings()) {
  return {.prompt = "Once upon a time there was a little girl named Lily. She",
          .max_tokens = 40,
          .constraint = ChoiceOf(std::move(choices)),
          .choice_law = ChoiceLaw::kConditional,
          .seed = 1};
}

// The sum of the `prompt_logprobs` of a text that is the prompt, the choice and the model's end.
double ScoredAlone(Engine* engine, const Request& request, const std::string& choice,
                   TokenId end_token) {
  const Tokenizer& tokenizer = engine->tokenizer();
  std::vector<TokenId> ids =
      tokenizer.WithTemplate(*tokenizer.Encode(request.prompt, SpecialTokens::kParse));
  const size_t num_prompt = ids.size();
  const std::vector<TokenId> tokens = *tokenizer.Encode(choice, SpecialTokens::kPlain);
  ids.insert(ids.end(), tokens.begin(), tokens.end());
  ids.push_back(end_token);
  const Completion scored =
      Generate(engine, {.prompt_ids = ids, .max_tokens = 0, .prompt_logprobs = {.num_top = 0}});
  double sum = 0.0;
  for (size_t i = num_prompt; i < ids.size(); ++i) sum += scored.prompt_logprobs[i]->logprob;
  return sum;
}

TEST(Choices, HaveThePromptLogprobsOfEachTextToTheLastBit) {
  EngineOptions options = ShippedPair();
  const std::unique_ptr<Engine> engine = MakeEngine(options);
  const Completion got = Generate(engine.get(), AskForChoice());
  ASSERT_THAT(got.choice_logprobs, SizeIs(Endings().size()));
  double sum = 0.0;
  for (size_t i = 0; i < Endings().size(); ++i) {
    const ChoiceLogprob& choice = got.choice_logprobs[i];
    EXPECT_EQ(choice.text, Endings()[i]);
    EXPECT_EQ(choice.logprob,
              ScoredAlone(engine.get(), AskForChoice(), Endings()[i], got.token_ids.back()));
    sum += std::exp(choice.normalized_logprob);
  }
  EXPECT_NEAR(sum, 1.0, 1e-12);  // eight numbers with f64's rounding
  ExpectConsistent(got);
  EXPECT_EQ(got.finish_reason, FinishReason::kStop);
  EXPECT_TRUE(engine->CheckIntegrity().ok());
}

// Seeds, temperatures, drafters, batches, chunks, pages and preemption: the same bits.
TEST(Choices, DependOnNeitherDrafterNorBatchNorMemory) {
  const std::unique_ptr<Engine> plain =
      MakeEngine(CpuOptionsFor(ShippedModelPath("storyteller-7m"), ""));
  std::vector<Request> requests;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    Request request = AskForChoice();
    request.seed = seed;
    request.sampling.temperature = std::vector<float>{0.0f, 0.7f, 1.0f, 3.0f}[seed % 4];
    if (seed % 3 == 0) request.logprobs.num_top = 2;
    if (seed % 3 == 1) request.prompt = "The";
    if (seed % 5 == 2) request.prompt_logprobs.num_top = 1;
    requests.push_back(request);
  }
  std::vector<Completion> wanted;
  for (const Request& request : requests) {
    wanted.push_back(Generate(plain.get(), request));
    const Completion& want = wanted.back();
    // The draw is that of the definition.
    std::vector<double> logprobs;
    for (const ChoiceLogprob& choice : want.choice_logprobs) logprobs.push_back(choice.logprob);
    const RandomPlace place{.stream = RandomStream::kChoice,
                            .position = static_cast<uint32_t>(want.prompt_tokens)};
    EXPECT_EQ(want.text, Endings()[DrawChoice(logprobs, request.sampling.temperature,
                                              RandomSource(*request.seed).UniformDouble(place))]);
  }
  for (const int chunk_tokens : {3, 64}) {
    for (const int page_size : {1, 16}) {
      EngineOptions options = ShippedPair();
      options.chunk_tokens = chunk_tokens;
      options.page_size = page_size;
      // Room for one of these requests and a little more: others are preempted.
      options.kv_memory_bytes = KvBytesFor(options.target, options.draft, 80);
      const std::unique_ptr<Engine> engine = MakeEngine(options);
      std::vector<Request> mixed = requests;
      for (int i = 0; i < 3; ++i) {
        mixed.insert(mixed.begin() + 4 * i,
                     {.prompt = "Tom", .max_tokens = 20, .sampling = kGreedy});
      }
      const std::vector<Completion> got = GenerateAll(engine.get(), mixed);
      size_t next = 0;
      for (size_t i = 0; i < mixed.size(); ++i) {
        if (mixed[i].choice_law != ChoiceLaw::kConditional) continue;
        ExpectSameOutput(got[i], wanted[next]);
        ExpectConsistent(got[i]);
        EXPECT_EQ(got[i].choice_logprobs, wanted[next].choice_logprobs);
        ++next;
      }
      EXPECT_EQ(next, wanted.size());
      EXPECT_TRUE(engine->CheckIntegrity().ok());
    }
  }
}

TEST(Choices, AreDrawnInProportionToTheirProbabilities) {
  const std::unique_ptr<Engine> engine =
      MakeEngine(CpuOptionsFor(ShippedModelPath("storyteller-7m"), ""));
  Request request = AskForChoice({" was", " had", " loved", " liked"});
  request.sampling.temperature = 2.0f;
  std::vector<int> counts(4);
  std::vector<ChoiceLogprob> law;
  constexpr int kDraws = 400;
  for (uint64_t seed = 0; seed < kDraws; ++seed) {
    request.seed = seed;
    const Completion got = Generate(engine.get(), request);
    law = got.choice_logprobs;
    for (size_t i = 0; i < 4; ++i) counts[i] += got.text == law[i].text ? 1 : 0;
  }
  double sum = 0.0;
  for (const ChoiceLogprob& choice : law) sum += std::exp(choice.logprob / 2);
  double chi_square = 0.0;
  for (size_t i = 0; i < 4; ++i) {
    const double expected = kDraws * std::exp(law[i].logprob / 2) / sum;
    chi_square += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  EXPECT_LT(chi_square, 16.27);  // three degrees of freedom: exceeded with probability 0.001
}

TEST(Choices, ArePiecesWithTheirProbabilities) {
  const std::unique_ptr<Engine> engine = MakeEngine(ShippedPair());
  Request request = AskForChoice();
  request.logprobs.num_top = 3;
  std::string text;
  std::vector<ChoiceLogprob> streamed;
  const auto got = engine->Generate(request, [&](const Piece& piece) {
    text += piece.text;
    streamed.insert(streamed.end(), piece.choice_logprobs.begin(), piece.choice_logprobs.end());
    return true;
  });
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(text, got->text);
  EXPECT_EQ(streamed, got->choice_logprobs);
  double sum = 0.0;
  for (const TokenLogprobs& row : got->logprobs) sum += row.logprob;
  EXPECT_THAT(got->logprobs, Each(testing::Field(&TokenLogprobs::top, SizeIs(3))));
  for (const ChoiceLogprob& choice : got->choice_logprobs) {
    EXPECT_TRUE(choice.text != text || choice.logprob == sum);
  }
}

TEST(Choices, AreCutByMaxTokensAndStopStringsLikeEveryOutput) {
  const std::unique_ptr<Engine> engine = MakeEngine(ShippedPair());
  Request request = AskForChoice({" went home and had dinner."});
  const Completion whole = Generate(engine.get(), request);
  EXPECT_EQ(whole.text, " went home and had dinner.");
  request.max_tokens = 2;
  const Completion cut = Generate(engine.get(), request);
  EXPECT_EQ(cut.finish_reason, FinishReason::kLength);
  EXPECT_THAT(cut.token_ids, SizeIs(2));
  request.max_tokens = 40;
  request.stop = {" and"};
  EXPECT_EQ(Generate(engine.get(), request).text, " went home");
}

TEST(Choices, MayBeAnEnumOfStrings) {
  const std::unique_ptr<Engine> engine = MakeEngine(ShippedPair());
  Request request = AskForChoice();
  request.constraint = OutputConstraint{
      .kind = OutputConstraint::Kind::kJsonSchema,
      .text = R"({"type": "string", "title": "Mood", "enum": ["happy", "so \"sad\""]})"};
  const Completion got = Generate(engine.get(), request);
  ASSERT_THAT(got.choice_logprobs, SizeIs(2));
  EXPECT_EQ(got.choice_logprobs[0].text, R"("happy")");
  EXPECT_EQ(got.choice_logprobs[1].text, R"("so \"sad\"")");
  request.constraint = ChoiceOf({R"("happy")", R"("so \"sad\"")"});
  EXPECT_EQ(Generate(engine.get(), request).choice_logprobs, got.choice_logprobs);
}

TEST(Choices, UpTo256AreScored) {
  const std::unique_ptr<Engine> engine = MakeEngine(ShippedPair());
  std::vector<std::string> choices;
  for (int i = 0; i < 256; ++i) choices.push_back(absl::StrCat(" had ", i, " balls."));
  const Completion got = Generate(engine.get(), AskForChoice(choices));
  ASSERT_THAT(got.choice_logprobs, SizeIs(256));
  for (const int i : {0, 1, 99, 255}) {
    EXPECT_EQ(got.choice_logprobs[i].logprob,
              ScoredAlone(engine.get(), AskForChoice(), choices[i], got.token_ids.back()));
  }
}

TEST(Choices, RefuseWhatTheyCannotFollowByTheNameOfItsField) {
  const std::unique_ptr<Engine> engine = MakeEngine(ShippedPair());
  const auto expect_wrong = [&](Request request, const char* field, const char* what) {
    const auto got = engine->Generate(request);
    ASSERT_FALSE(got.ok()) << field;
    EXPECT_THAT(std::string(got.status().message()), HasSubstr(absl::StrCat(field, ": ")));
    EXPECT_THAT(std::string(got.status().message()), HasSubstr(what));
  };
  Request request = AskForChoice();
  request.sampling.top_k = 5;
  expect_wrong(request, "top_k", "must be 0 with choice_law \"conditional\", got 5");
  request = AskForChoice();
  request.sampling.top_p = 0.5f;
  expect_wrong(request, "top_p", "must be 1");
  request = AskForChoice();
  request.sampling.min_p = 0.5f;
  expect_wrong(request, "min_p", "must be 0");
  request = AskForChoice();
  request.sampling.presence_penalty = 0.5f;
  expect_wrong(request, "presence_penalty", "must be 0");
  request = AskForChoice();
  request.sampling.min_tokens = 1;
  expect_wrong(request, "min_tokens", "must be 0");
  request = AskForChoice();
  request.sampling.logit_bias = {{1, 1.0f}};
  expect_wrong(request, "logit_bias", "must be empty");
  request = AskForChoice();
  request.ignore_eos = true;
  expect_wrong(request, "ignore_eos", "must be false");
  request = AskForChoice();
  request.max_tokens = 0;
  expect_wrong(request, "max_tokens", "at least 1");
  request = AskForChoice();
  request.logprobs = {.num_top = 1, .processed = true};
  expect_wrong(request, "logprobs", "must be raw");
  request = AskForChoice();
  request.constraint = std::nullopt;
  expect_wrong(request, "choice_law", "without choices");
  request.constraint = OutputConstraint{.kind = OutputConstraint::Kind::kRegex, .text = "a|b"};
  expect_wrong(request, "choice_law", "allowed with it: a choice");
  for (const char* schema :
       {R"({"type": "object"})", R"({"enum": ["a", 1]})", R"({"enum": ["a"], "minLength": 3})",
        R"({"enum": ["a"], "type": "object"})"}) {
    request.constraint =
        OutputConstraint{.kind = OutputConstraint::Kind::kJsonSchema, .text = schema};
    expect_wrong(request, "choice_law", "allowed with it: a choice");
  }
  expect_wrong(AskForChoice({}), "constraint", "found 0 choices");
  expect_wrong(AskForChoice(std::vector<std::string>(257, "a")), "constraint", "1 to 256");
  expect_wrong(AskForChoice({"a", "b", "a"}), "constraint", "the choices 0 and 2 are both \"a\"");
  expect_wrong(AskForChoice({"\xff"}), "constraint", "UTF-8");
  std::string endless;
  for (int i = 0; i < 3000; ++i) endless += " big";
  expect_wrong(AskForChoice({"a", endless}), "constraint", "the longest choice has 3000 tokens");
}

TEST(Choices, LeaveTheModelsChoiceToTheMaskedLawByDefault) {
  const std::unique_ptr<Engine> engine = MakeEngine(ShippedPair());
  Request request = AskForChoice({" was", " had"});
  request.choice_law = ChoiceLaw::kMasked;
  const auto got = engine->Generate(request);
  if (absl::IsUnimplemented(got.status())) GTEST_SKIP() << "without a grammar engine";
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_THAT(got->choice_logprobs, IsEmpty());
}

TEST(ChoiceLawNames, AreReadAndWritten) {
  for (const ChoiceLaw law : {ChoiceLaw::kMasked, ChoiceLaw::kConditional}) {
    EXPECT_EQ(*ParseChoiceLaw(NameOf(law)), law);
  }
  EXPECT_THAT(std::string(ParseChoiceLaw("greedy").status().message()),
              Eq("choice_law: \"greedy\" is not one of masked, conditional"));
}

}  // namespace
}  // namespace tandem
