// Speculation does not change the target's law. Many seeded generations run with the production
// code's rounds, random numbers and sampling; their first tokens are counted and compared with the
// exact law. Planted mistakes of drafters and models show that the same counts see them. Mistakes
// of the judge itself are planted in verify/acceptance_law_test.cc.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/law_kit.h"
#include "tests/round_world.h"

namespace tandem {
namespace {

const Tokens& Prompt() {
  static const Tokens prompt = {1, 0, 2, 1};
  return prompt;
}
// With few tokens and different rows, an error of one percent shows within 40,000 generations.
constexpr int kVocab = 4;
RoundModels::Options SmallModels(float shared = 2.0f, float own = 1.5f) {
  return {.target = {.vocab = kVocab, .shared = shared, .own = own},
          .draft = {.vocab = kVocab, .salt = 2, .shared = shared, .own = own}};
}
// Models that disagree, for more rejections.
RoundModels::Options DisagreeingModels() { return SmallModels(0.5f, 4.0f); }

// The seeds are fixed, so each score is the same in every run. By chance a score exceeds 4 once in
// 30,000.
constexpr double kLimit = 4.0;
constexpr int kRuns = 20000;

// Returns the exact law of the first tokens, from rows of the target that are processed with the
// history of their prefixes.
Law ExactLaw(const FakeModel& target, const SamplingParams& sampling, size_t length) {
  const RowOf row_of = [&](const Tokens& output) {
    Tokens context = Prompt();
    context.insert(context.end(), output.begin(), output.end());
    TokenHistory history(sampling.constraint.get());
    history.AddPrompt(Prompt());
    for (const TokenId token : output) history.AddOutput(token);
    Distribution p;
    EXPECT_TRUE(MakeDistribution(target.RowAfter(context), sampling, &history, &p).ok());
    Row row(kVocab, 0.0);
    if (p.only >= 0) {
      row[p.only] = 1.0;
    } else {
      std::copy(p.probs.begin(), p.probs.end(), row.begin());
    }
    return row;
  };
  return PlainLaw(row_of, length);
}

struct Trial {
  AcceptanceRule rule = AcceptanceRule::kToken;
  int k = 4;
  SamplingParams sampling = {};
  size_t length = 3;  // tokens compared
  int runs = kRuns;
  RoundModels::Options models = SmallModels();
  bool learns_draft_temperature = false;
};

// Returns the score of the first tokens over many seeds, compared with `law`.
double Score(RoundModels* models, Drafter* drafter, const Trial& trial, const Law& law) {
  std::map<Tokens, int64_t> counts;
  for (int seed = 0; seed < trial.runs; ++seed) {
    const auto s =
        models->NewSession(Prompt(), static_cast<int>(trial.length) + trial.k + 1, drafter);
    SetSampling(trial.sampling, s.get());
    s->rule = trial.rule;
    s->random = RandomSource(seed);
    s->learns_draft_temperature = trial.learns_draft_temperature;
    while (s->num_output() < static_cast<int>(trial.length)) {
      if (const absl::Status status = models->Round(drafter, s.get(), trial.k); !status.ok()) {
        ADD_FAILURE() << status;
        return INFINITY;
      }
    }
    ++counts[Prefix(OutputOf(*s), trial.length)];
    models->target.passes().clear();
    models->draft.passes().clear();
  }
  return FitScore(counts, law);
}
double Score(RoundModels* models, Drafter* drafter, const Trial& trial) {
  return Score(models, drafter, trial, ExactLaw(models->target, trial.sampling, trial.length));
}

SamplingParams Penalized() {
  return {.repetition_penalty = 1.4f, .frequency_penalty = 1.0f, .presence_penalty = 0.5f};
}

TEST(RunRound, IsLossless) {
  const SamplingParams params[] = {{},
                                   {.temperature = 0.7f, .top_k = 3, .min_p = 0.05f},
                                   {.temperature = 1.4f, .top_p = 0.8f},
                                   {.min_tokens = 2, .ending_tokens = {1}},
                                   {.constraint = std::make_shared<const ClassConstraint>()},
                                   {.constraint = ClassThinking()},
                                   Penalized()};
  for (const SamplingParams& sampling : params) {
    for (const AcceptanceRule rule :
         {AcceptanceRule::kToken, AcceptanceRule::kBlock, AcceptanceRule::kExactMatch}) {
      for (const int k : {0, 4}) {
        if (k == 0 && rule != AcceptanceRule::kToken)
          continue;  // plain decoding is the same under every rule
        RoundModels models(SmallModels());
        EXPECT_LT(Score(&models, k == 0 ? nullptr : &models.drafter,
                        {.rule = rule, .k = k, .sampling = sampling}),
                  kLimit)
            << NameOf(rule) << " k " << k << " T " << sampling.temperature;
        EXPECT_EQ(models.target_cache->num_free_pages(), models.target_cache->num_pages());
        EXPECT_EQ(models.draft_cache->num_free_pages(), models.draft_cache->num_pages());
      }
    }
  }
}

// Drafts are drawn at another temperature than the request's, learned from earlier rounds.
TEST(RunRound, IsLosslessWithALearnedDraftTemperature) {
  for (const AcceptanceRule rule : {AcceptanceRule::kToken, AcceptanceRule::kBlock}) {
    RoundModels::Options options = SmallModels();
    options.draft.shared *= 2.0f;  // far too sharp
    options.draft.own *= 2.0f;
    RoundModels models(options);
    EXPECT_LT(Score(&models, &models.drafter, {.rule = rule, .learns_draft_temperature = true}),
              kLimit)
        << NameOf(rule);
    EXPECT_LT(models.policy.unsalted().DraftTemperatureAt(1.0f).At(0), 1.0f);
  }
}

// A draft with another vocabulary. It has three of the target's four tokens, with other ids, and
// reads the fourth as two tokens that the target does not have.
constexpr int kOtherVocab = 5;
VocabularyMap OtherVocabulary() { return {{{0, 3}, {1, 0}, {2, 4}}, {{3}, {0}, {4}, {1, 2}}}; }
RoundModels::Options ModelsOfOtherVocabulary() {
  RoundModels::Options options = SmallModels();
  options.draft.vocab = kOtherVocab;
  return options;
}

TEST(RunRound, IsLosslessWithADraftOfAnotherVocabulary) {
  const VocabularyMap map = OtherVocabulary();
  const Trial trials[] = {{.rule = AcceptanceRule::kToken},
                          {.rule = AcceptanceRule::kBlock},
                          {.rule = AcceptanceRule::kBlock, .sampling = Penalized()}};
  for (const Trial& trial : trials) {
    RoundModels models(ModelsOfOtherVocabulary());
    ModelDrafter drafter(&models.draft, models.draft_cache.get(), kVocab, 8, &map);
    EXPECT_LT(Score(&models, &drafter, trial), kLimit) << NameOf(trial.rule);
    EXPECT_EQ(models.draft_cache->num_free_pages(), models.draft_cache->num_pages());
  }
}

// A NaN row counts as a separate symbol that ends the text. Generations reach it as often as in
// plain decoding.
TEST(RunRound, IsLosslessIfRowsAreNaN) {
  const auto is_none = [](absl::Span<const TokenId> context) {
    return context.size() == Prompt().size() + 2 && context.back() % 2 == 0;
  };
  constexpr TokenId kFailure = kVocab;
  constexpr size_t kLength = 3;
  for (const AcceptanceRule rule : {AcceptanceRule::kToken, AcceptanceRule::kBlock}) {
    RoundModels models(DisagreeingModels());
    models.target.options().poisoned = is_none;
    const Law law = PlainLaw(
        [&](const Tokens& output) {
          Tokens context = Prompt();
          context.insert(context.end(), output.begin(), output.end());
          Row row(kVocab + 1, 0.0);
          Distribution p;
          if (MakeDistribution(models.target.RowAfter(context), {}, nullptr, &p).ok()) {
            std::copy(p.probs.begin(), p.probs.end(), row.begin());
          } else {
            row[kFailure] = 1.0;
          }
          return row;
        },
        kLength);
    std::map<Tokens, int64_t> counts;
    for (int seed = 0; seed < 2 * kRuns; ++seed) {
      const auto s = models.NewSession(Prompt(), kLength + 5, &models.drafter);
      s->rule = rule;
      s->random = RandomSource(seed);
      while (!s->finished && s->num_output() < static_cast<int>(kLength)) {
        ASSERT_TRUE(models.Round(&models.drafter, s.get(), 4).ok());
      }
      Tokens output = Prefix(OutputOf(*s), kLength);
      if (!s->status.ok()) output.push_back(kFailure);
      ++counts[output];
      models.target.passes().clear();
      models.draft.passes().clear();
    }
    EXPECT_LT(FitScore(counts, law), kLimit) << NameOf(rule);
  }
}

// Logits with few bits: q is still the distribution that the draft was drawn from.
TEST(RunRound, IsLosslessForLogitsInBf16) {
  for (const AcceptanceRule rule : {AcceptanceRule::kToken, AcceptanceRule::kBlock}) {
    RoundModels::Options options = SmallModels();
    options.target.is_bf16 = true;
    options.draft.is_bf16 = true;
    RoundModels models(options);
    EXPECT_LT(Score(&models, &models.drafter, {.rule = rule}), kLimit) << NameOf(rule);
  }
}

// A draft with fewer tokens than the target, which does not propose after the missing ones, or with
// more tokens, which it never proposes.
TEST(RunRound, IsLosslessForSmallerAndLargerDraftVocabularies) {
  for (const int draft_vocab : {kVocab - 2, kVocab - 1, kVocab + 2}) {
    for (const AcceptanceRule rule :
         {AcceptanceRule::kToken, AcceptanceRule::kBlock, AcceptanceRule::kExactMatch}) {
      RoundModels::Options options = SmallModels();
      options.draft.vocab = draft_vocab;
      RoundModels models(options);
      EXPECT_LT(Score(&models, &models.drafter, {.rule = rule, .k = 2, .runs = kRuns / 2}), kLimit)
          << NameOf(rule) << " " << draft_vocab;
    }
  }
}

// ---- Planted mistakes ----

// A drafter without a cache that draws from the draft's rows. Tests plant mistakes in it.
using PlaceOf = std::function<RandomPlace(uint32_t committed, uint32_t slot)>;
RandomPlace OwnPlace(uint32_t committed, uint32_t slot) {
  return {.stream = RandomStream::kDraft, .position = committed, .slot = slot};
}
void DrawDraft(const FakeModel& draft, const PlaceOf& place, const DraftRequest& request,
               Proposal* proposal) {
  Tokens context(request.context.begin(), request.context.end());
  for (int i = 0; i < request.granted; ++i) {
    Distribution* q = proposal->NextDistribution();
    ASSERT_TRUE(MakeDistribution(draft.RowAfter(context), {}, nullptr, q).ok());
    proposal->tokens.push_back(
        Draw(*q, request.random,
             place(static_cast<uint32_t>(request.context.size()), static_cast<uint32_t>(i))));
    context.push_back(proposal->tokens.back());
  }
}

constexpr AcceptanceRule kSampledRules[] = {AcceptanceRule::kToken, AcceptanceRule::kBlock};
// Far beyond chance.
constexpr double kSeen = 3 * kLimit;

// Returns the score of a drafter that draws with the noise of `place` and then changes the draft
// with `afterwards`.
double ScoreOfDrafter(
    const Trial& trial, const PlaceOf& place,
    const std::function<void(Proposal*)>& afterwards = [](Proposal*) {}) {
  RoundModels models(trial.models);
  FunctionDrafter drafter([&](const DraftRequest& request, Proposal* proposal) {
    DrawDraft(models.draft, place, request, proposal);
    afterwards(proposal);
  });
  return Score(&models, &drafter, trial);
}

TEST(PlantedInRounds, NoFaultIsSeenWithoutOne) {
  for (const AcceptanceRule rule : kSampledRules) {
    EXPECT_LT(ScoreOfDrafter({.rule = rule}, OwnPlace), kLimit);
  }
}

TEST(PlantedInRounds, DraftRowsOffByOneAreSeen) {
  const auto shift = [](Proposal* proposal) {
    std::rotate(proposal->drawn_from.begin(), proposal->drawn_from.begin() + 1,
                proposal->drawn_from.begin() + static_cast<int>(proposal->tokens.size()));
  };
  for (const AcceptanceRule rule : kSampledRules) {
    EXPECT_GT(ScoreOfDrafter({.rule = rule}, OwnPlace, shift), kSeen) << NameOf(rule);
  }
}

// A draft with another vocabulary must record its distribution after masking the tokens that the
// target does not have. Here the recorded row still has two fifths of its mass on them.
TEST(PlantedInRounds, DraftsRecordedBeforeMaskingAreSeen) {
  const VocabularyMap map = OtherVocabulary();
  for (const AcceptanceRule rule : kSampledRules) {
    RoundModels models(ModelsOfOtherVocabulary());
    ModelDrafter drafter(&models.draft, models.draft_cache.get(), kVocab, 8, &map);
    FunctionDrafter recorder([&](const DraftRequest& request, Proposal* proposal) {
      const auto state = drafter.NewState({});
      DraftRequest alone = request;
      alone.state = state.get();
      ASSERT_TRUE(drafter.Propose({&alone, 1}, {&proposal, 1}).ok());
      for (size_t i = 0; i < proposal->tokens.size(); ++i) {
        for (float& q : proposal->drawn_from[i].probs) q *= 0.6f;
      }
    });
    EXPECT_GT(Score(&models, &recorder, {.rule = rule}), kSeen) << NameOf(rule);
  }
}

TEST(PlantedInRounds, DraftNoiseSharedWithCoinsIsSeen) {
  const PlaceOf coins = [](uint32_t committed, uint32_t slot) {
    return RandomPlace{.stream = RandomStream::kAccept, .position = committed, .slot = slot};
  };
  for (const AcceptanceRule rule : kSampledRules) {
    const Trial trial{.rule = rule, .k = 2, .models = DisagreeingModels()};
    EXPECT_GT(ScoreOfDrafter(trial, coins), kSeen) << NameOf(rule);
    EXPECT_LT(ScoreOfDrafter(trial, OwnPlace), kLimit) << NameOf(rule);
  }
}

// Hard to see: that token x won the race only says of the other tokens how late they started, so
// the bias is small, and most of it is in the first tokens. The test therefore uses more runs, and
// a draft for which the bias is large.
TEST(PlantedInRounds, DraftNoiseSharedWithTheResidualIsSeen) {
  const PlaceOf residual = [](uint32_t committed, uint32_t slot) {
    return RandomPlace{.stream = RandomStream::kResidual, .position = committed, .slot = slot};
  };
  for (const AcceptanceRule rule : kSampledRules) {
    Trial trial{
        .rule = rule, .k = 2, .length = 2, .runs = 6 * kRuns, .models = DisagreeingModels()};
    trial.models.draft.salt = 9;
    EXPECT_GT(ScoreOfDrafter(trial, residual), kSeen) << NameOf(rule);
    EXPECT_LT(ScoreOfDrafter(trial, OwnPlace), kLimit) << NameOf(rule);
  }
}

// If noise is keyed by the token's position alone, the noise of a rejected draft token is read
// again in the next round. The block rule is biased by that.
TEST(PlantedInRounds, DraftNoiseSharedWithALaterRoundIsSeenByBlock) {
  const PlaceOf by_position = [](uint32_t committed, uint32_t slot) {
    return RandomPlace{.stream = RandomStream::kDraft, .position = committed + slot, .slot = 0};
  };
  const Trial trial{.rule = AcceptanceRule::kBlock, .k = 3, .length = 4, .runs = 5 * kRuns};
  EXPECT_GT(ScoreOfDrafter(trial, by_position), kSeen);
  EXPECT_LT(ScoreOfDrafter(trial, OwnPlace), kLimit);
}

TEST(PlantedInRounds, DraftLengthChosenFromTheDrawnTokenIsSeen) {
  const auto drop_unlikely = [](Proposal* proposal) {
    for (size_t i = 0; i < proposal->tokens.size(); ++i) {
      if (proposal->drawn_from[i].probs[proposal->tokens[i]] < 0.3f) proposal->tokens.resize(i);
    }
  };
  const auto drop_after_unlikely = [](Proposal* proposal) {
    for (size_t i = 0; i + 1 < proposal->tokens.size(); ++i) {
      if (proposal->drawn_from[i].probs[proposal->tokens[i]] < 0.3f) proposal->tokens.resize(i + 1);
    }
  };
  for (const AcceptanceRule rule : kSampledRules) {
    EXPECT_GT(ScoreOfDrafter({.rule = rule}, OwnPlace, drop_unlikely), kSeen) << NameOf(rule);
    EXPECT_LT(ScoreOfDrafter({.rule = rule}, OwnPlace, drop_after_unlikely), kLimit)
        << NameOf(rule);
  }
}

TEST(PlantedInRounds, DraftCutBeforeAForbiddenTokenIsSeen) {
  const SamplingParams forbids = {.logit_bias = {{2, -100.0f}}};
  const auto cut = [](int kept) {
    return [kept](Proposal* proposal) {
      const auto it = std::find(proposal->tokens.begin(), proposal->tokens.end(), 2);
      const auto end = it - proposal->tokens.begin() + kept;
      if (it != proposal->tokens.end()) proposal->tokens.resize(end);
    };
  };
  for (const AcceptanceRule rule : kSampledRules) {
    const Trial trial{.rule = rule, .sampling = forbids};
    EXPECT_GT(ScoreOfDrafter(trial, OwnPlace, cut(0)), kSeen) << NameOf(rule);
    EXPECT_LT(ScoreOfDrafter(trial, OwnPlace, cut(1)), kLimit) << NameOf(rule);
  }
}

TEST(PlantedInRounds, GreedyDraftThatRecordsItsSoftmaxIsSeen) {
  for (const bool honest : {true, false}) {
    RoundModels models(SmallModels());
    FunctionDrafter drafter([&](const DraftRequest& request, Proposal* proposal) {
      Tokens context(request.context.begin(), request.context.end());
      for (int i = 0; i < request.granted; ++i) {
        const std::vector<float> row = models.draft.RowAfter(context);
        Suggest(ArgMax(row), proposal);
        context.push_back(ArgMax(row));
        Distribution& q = proposal->drawn_from[i];
        if (honest) continue;
        ASSERT_TRUE(MakeDistribution(row, {}, nullptr, &q).ok());
      }
    });
    for (const AcceptanceRule rule : kSampledRules) {
      const double score = Score(&models, &drafter, {.rule = rule});
      if (honest) {
        EXPECT_LT(score, kLimit) << NameOf(rule);
      } else {
        EXPECT_GT(score, kSeen) << NameOf(rule);
      }
    }
  }
}

// The model itself applies penalties, without the sampler: for each row from its own prefix or, as
// the planted mistake, for all rows of a pass from the tokens committed before it.
class PenalizingModel final : public LanguageModel {
 public:
  PenalizingModel(FakeModel* model, bool once_per_round)
      : model_(model), once_per_round_(once_per_round) {}
  int vocab_size() const override { return model_->vocab_size(); }
  int context_length() const override { return model_->context_length(); }

  absl::StatusOr<MatrixView> Forward(absl::Span<const ForwardRequest> requests) override {
    auto rows = model_->Forward(requests);
    if (!rows.ok()) return rows;
    int row = 0;
    for (const ForwardRequest& r : requests) {
      const Tokens read = FakeModel::Contents(*r.kv);
      const int first = r.kv->length() - r.num_logits + 1;
      for (int length = first; length <= r.kv->length(); ++length, ++row) {
        float* logits = static_cast<float*>(rows->data) + row * rows->stride;
        for (int i = static_cast<int>(Prompt().size()); i < (once_per_round_ ? first : length);
             ++i) {
          logits[read[i]] -= 1.5f;
        }
      }
    }
    return rows;
  }

 private:
  FakeModel* model_;
  bool once_per_round_;
};

TEST(PlantedInRounds, PenaltiesCountedOncePerRoundAreSeen) {
  for (const AcceptanceRule rule : kSampledRules) {
    for (const bool once_per_round : {false, true}) {
      RoundModels models(SmallModels());
      PenalizingModel penalizing(&models.target, once_per_round);
      models.verifier = Verifier(&penalizing);
      const Law law = ExactLaw(models.target, {.frequency_penalty = 1.5f}, 3);
      const double score = Score(&models, &models.drafter, {.rule = rule}, law);
      if (once_per_round) {
        EXPECT_GT(score, kSeen) << NameOf(rule);
      } else {
        EXPECT_LT(score, kLimit) << NameOf(rule);
      }
    }
  }
}

}  // namespace
}  // namespace tandem
