// The parts of the proof on fake models: remembered rows, exact laws, and each planted fault that
// it must see.
#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/string_view.h"
#include "engine/engine_testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proof/exact_checks.h"
#include "proof/law_trials.h"
#include "proof/planted_faults.h"
#include "proof/remembered_model.h"
#include "tests/device_world.h"
#include "tests/round_world.h"

namespace tandem {
namespace {

// A pair of fakes whose rows are remembered.
class ProofOnFakes : public testing::Test {
 protected:
  ProofOnFakes()
      : ProofOnFakes(
            RoundModels::Options{.target = {.vocab = 5}, .draft = {.vocab = 5, .salt = 2}}) {}
  // `mask_token`: of a draft in one pass, or kNoMaskToken.
  explicit ProofOnFakes(const RoundModels::Options& options, TokenId mask_token = kNoMaskToken)
      : models(options),
        target(*RememberedModel::Create(&models.target, models.target_cache.get(), 1 << 20)),
        draft(*RememberedModel::Create(&models.draft, models.draft_cache.get(), 1 << 20)),
        drafter(draft.get(), draft->cache(), 5, 8, /*vocabulary=*/nullptr, mask_token),
        world{.target = target.get(), .target_cache = target->cache(), .drafter = &drafter} {}

  Fit Test(const ProofWorld& tested, AcceptanceRule rule, const SamplingParams& sampling, int runs,
           int k = 3, int length = 3) {
    const auto law = TargetLaw::Expand(target.get(), prompt, sampling, {.length = length});
    EXPECT_TRUE(law.ok()) << law.status();
    LawTrials trials(tested, std::make_shared<const TargetLaw>(*law),
                     {.prompt = prompt,
                      .sampling = {.params = sampling},
                      .rule = rule,
                      .draft_tokens = k,
                      .length = length},
                     RandomSource(5), 16);
    EXPECT_TRUE(trials.Run(runs).ok());
    EXPECT_EQ(trials.runs(), runs);
    return trials.fit();
  }

  const Tokens prompt = {1, 0, 2, 1};
  RoundModels models;
  std::unique_ptr<RememberedModel> target;
  std::unique_ptr<RememberedModel> draft;
  ModelDrafter drafter;
  ProofWorld world;
};

TEST_F(ProofOnFakes, RememberedRowsEqualTheModels) {
  const Tokens text = {1, 0, 2, 1, 3, 4, 4, 0};
  ASSERT_TRUE(target->KeepPrompt(prompt).ok());
  for (size_t length = 1; length <= text.size(); ++length) {
    const Tokens context = Prefix(text, length);
    const auto row = target->RowAfter(context);
    ASSERT_TRUE(row.ok()) << row.status();
    EXPECT_THAT(*row, testing::ElementsAreArray(models.target.RowAfter(context))) << length;
  }
  // A pass of two sequences, one of which was rolled back, does not compute any row again.
  const int64_t computed = target->num_rows_computed();
  KvSequence one = target->cache()->NewSequence();
  KvSequence two = target->cache()->NewSequence();
  const Tokens wrong = {1, 0, 4, 4, 4};
  const ForwardRequest reads{.tokens = wrong, .kv = &two, .num_logits = 0};
  ASSERT_TRUE(target->Forward({&reads, 1}).ok());
  two.Truncate(2);
  const ForwardRequest passes[] = {
      {.tokens = absl::MakeConstSpan(text).first(3), .kv = &one, .num_logits = 1},
      {.tokens = absl::MakeConstSpan(text).subspan(2), .kv = &two, .num_logits = 2}};
  const auto rows = target->Forward(passes);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ(target->num_rows_computed(), computed);
  for (const auto& [index, length] : {std::pair{0, 3}, {1, 7}, {2, 8}}) {
    const float* row = static_cast<const float*>(rows->data) + index * rows->stride;
    EXPECT_THAT(absl::MakeConstSpan(row, 5),
                testing::ElementsAreArray(models.target.RowAfter(Prefix(text, length))));
  }
}

// Rows that do not fit are computed again each time, with the same result.
TEST_F(ProofOnFakes, ForgetsRowsThatDoNotFit) {
  const auto small = *RememberedModel::Create(&models.target, models.target_cache.get(), 1);
  for (int pass = 0; pass < 2; ++pass) {
    for (int i = 0; i < 600; ++i) {
      const Tokens context = {i % 5, i / 5 % 5, i / 25 % 5, i / 125 % 5, 1};
      const auto row = small->RowAfter(context);
      ASSERT_TRUE(row.ok());
      ASSERT_THAT(*row, testing::ElementsAreArray(models.target.RowAfter(context)));
    }
  }
  EXPECT_GT(small->num_rows_computed(), 600);
}

// The cells have the probabilities of the completely enumerated law.
TEST_F(ProofOnFakes, CellsHaveTheEnumeratedProbabilities) {
  const SamplingParams sampling = {.temperature = 0.8f, .frequency_penalty = 0.7f};
  const RowOf row_of = [&](const Tokens& output) {
    Tokens context = prompt;
    context.insert(context.end(), output.begin(), output.end());
    TokenHistory history;
    history.AddPrompt(prompt);
    for (const TokenId token : output) history.AddOutput(token);
    Distribution p;
    EXPECT_TRUE(MakeDistribution(models.target.RowAfter(context), sampling, &history, &p).ok());
    return Row(p.probs.begin(), p.probs.end());
  };
  const Law whole = PlainLaw(row_of, 3);
  for (const double least : {1e-9, 0.02, 0.3}) {
    const auto law =
        TargetLaw::Expand(target.get(), prompt, sampling, {.length = 3, .min_probability = least});
    ASSERT_TRUE(law.ok()) << law.status();
    std::vector<double> cells(law->probabilities().size());
    for (const auto& [tokens, probability] : whole) cells[law->CellOf(tokens)] += probability;
    for (size_t i = 0; i < cells.size(); ++i) {
      EXPECT_NEAR(cells[i], law->probabilities()[i], 1e-6) << least;  // rows are f32
    }
    EXPECT_TRUE(least > 1e-9 || cells.size() >= 125u);
    EXPECT_EQ(law->CellOf({}), -1);
  }
}

TEST_F(ProofOnFakes, SoundRoundsFollowTheLaw) {
  for (const SamplingParams& sampling :
       {SamplingParams{}, SamplingParams{.temperature = 1.3f, .top_k = 3},
        SamplingParams{.frequency_penalty = kPlantedFrequencyPenalty},
        SamplingParams{.constraint = std::make_shared<const ClassConstraint>()},
        SamplingParams{.constraint = ClassThinking()}}) {
    for (const AcceptanceRule rule :
         {AcceptanceRule::kToken, AcceptanceRule::kBlock, AcceptanceRule::kExactMatch}) {
      EXPECT_GT(Test(world, rule, sampling, 4000).p_value, 1e-3) << NameOf(rule);
    }
  }
  EXPECT_EQ(target->cache()->num_free_pages(), target->cache()->num_pages());
}

// With a draft in steps, and one in one pass.
class PlantedInAProof : public ProofOnFakes, public testing::WithParamInterface<bool> {
 protected:
  // Models that disagree, with small vocabularies, so that faults show soon.
  PlantedInAProof()
      : ProofOnFakes({.target = {.vocab = 5, .shared = 0.5f, .own = 4.0f},
                      .draft = {.vocab = 6, .salt = 5, .shared = 0.5f, .own = 4.0f}},
                     /*mask_token=*/GetParam() ? 5 : kNoMaskToken) {}
};

TEST_P(PlantedInAProof, EveryFaultOfTheLawIsSeen) {
  for (const PlantedFault& fault : PlantedFaults()) {
    if (!fault.applies_to(drafter)) continue;
    for (const AcceptanceRule rule : fault.rules) {
      SamplingParams sampling;
      if (fault.shows == FaultShows::kWhereTokensRepeat) {
        sampling.frequency_penalty = kPlantedFrequencyPenalty;
      }
      // The unscaled residual is wrong by about one percent, and only after an accepted token.
      const bool is_small = fault.shows == FaultShows::kWhereResidualsAreScaled ||
                            fault.shows == FaultShows::kWhereSharedNoiseDelays;
      const bool is_constrained = fault.shows == FaultShows::kWhereAConstraintBinds;
      if (is_constrained) sampling.constraint = std::make_shared<const ClassConstraint>();
      const int draft_tokens =
          is_constrained ? 2 : 3;  // also covers the row after a fully accepted draft
      const PlantedWorld planted(world, fault);
      EXPECT_LT(
          Test(planted.world(), rule, sampling, is_small ? 40000 : 4000, draft_tokens).p_value,
          1e-6)
          << fault.name << " " << NameOf(rule);
    }
  }
}

// Faulty judges run in the production code: with rows on a device they make the same errors as on
// the host.
TEST_P(PlantedInAProof, FaultyJudgesErrTheSameOnADevice) {
  int num_changed = 0;
  for (const PlantedFault& fault : PlantedFaults()) {
    // Not a fault of state, nor of another kind of drafter.
    if (fault.rules.empty() || !fault.applies_to(drafter)) continue;
    const PlantedWorld planted(world, fault);
    const AcceptanceRule rule = fault.rules.front();
    for (uint64_t seed = 0; seed < 60; ++seed) {
      SCOPED_TRACE(absl::StrCat(View(fault.name), " seed ", seed));
      Verdict verdicts[2];
      Worlds worlds({}, planted.world().judge);
      for (VerifyWorld* w : {&worlds.on_host, worlds.on_device.get()}) {
        const bool on_device = w == worlds.on_device.get();
        VerifySequence* s = w->Add({1, 2, 3}, {.temperature = 0.5f}, seed);
        s->rule = rule;
        w->Propose(s, 3);
        if (on_device) PutRowsOnDevice(w->model().device_rows().backend, &s->proposal);
        verdicts[on_device ? 1 : 0] = w->Verify(s).verdict;
      }
      EXPECT_EQ(worlds.sampler.num_calls(), 1);
      EXPECT_EQ(verdicts[1].num_accepted, verdicts[0].num_accepted);
      EXPECT_EQ(verdicts[1].next, verdicts[0].next);
      Worlds sound;
      VerifySequence* s = sound.on_host.Add({1, 2, 3}, {.temperature = 0.5f}, seed);
      s->rule = rule;
      sound.on_host.Propose(s, 3);
      num_changed += sound.on_host.Verify(s).verdict.next != verdicts[0].next ? 1 : 0;
    }
  }
  EXPECT_GT(num_changed, 20);
}

TEST_P(PlantedInAProof, SoundRoundsFollowTheLaw) {
  for (const AcceptanceRule rule : kAllRules) {
    EXPECT_GT(Test(world, rule, {}, 8000).p_value, 1e-3) << NameOf(rule);
  }
}

// Faults that cost only speed show in the proposals. The output has the same law with them.
TEST_P(PlantedInAProof, FaultsOfTheDraftsStateAreSeen) {
  const std::function<bool()> go_on = [] { return true; };
  const ExactOptions options = {.prompts = {prompt, {3, 3, 0}},
                                .settings = {{.name = "T 1", .params = {}}},
                                .draft_tokens = 4,
                                .max_tokens = 40,
                                .seed = 1,
                                .go_on = go_on};
  const auto sound = CheckDraftState(world, world, options);
  ASSERT_TRUE(sound.ok()) << sound.status();
  EXPECT_GT(sound->compared, 100);
  EXPECT_EQ(sound->different, 0) << sound->first_difference;
  int num_seen = 0;
  for (const PlantedFault& fault : PlantedFaults()) {
    if (fault.seen_by != SeenBy::kProposals || !fault.applies_to(drafter)) continue;
    SCOPED_TRACE(std::string(fault.name));
    const PlantedWorld planted(world, fault);
    const auto state = CheckDraftState(planted.world(), world, options);
    ASSERT_TRUE(state.ok()) << state.status();
    EXPECT_GT(state->different, 10);
    EXPECT_GT(Test(planted.world(), AcceptanceRule::kBlock, {}, 4000).p_value, 1e-3);
    ++num_seen;
  }
  EXPECT_EQ(num_seen, GetParam() ? 4 : 1);
}

INSTANTIATE_TEST_SUITE_P(Forms, PlantedInAProof, testing::Bool(),
                         [](const auto& info) { return info.param ? "InOnePass" : "InSteps"; });

}  // namespace
}  // namespace tandem
