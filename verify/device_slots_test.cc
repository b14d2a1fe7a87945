#include "verify/device_slots.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/fake_sampler.h"
#include "tests/verify_world.h"

namespace tandem {
namespace {

using testing::HasSubstr;
using World = VerifyWorld;
using Sequence = VerifySequence;

// What a device is to answer, by the host's slots.
SlotAnswer AnswerOnHost(absl::Span<const SlotTask> slots, int index) {
  const SlotTask& slot = slots[index];
  std::vector<Distribution> target, draft;
  std::vector<TokenId> tokens;
  double survival = 1.0;
  for (int i = slot.first_slot; i <= index; ++i) {
    const SlotTask& s = slots[i];
    target.push_back({.probs = {s.target, s.target + s.target_size}});
    draft.push_back({.only = s.draft_only});
    if (s.draft != nullptr) draft.back().probs.assign(s.draft, s.draft + s.draft_size);
    tokens.push_back(s.token);
  }
  const RandomSource random(slot.key);
  const RandomPlace place = FakeSampler::PlaceOf(slot);
  const auto row = [&](int i) -> absl::StatusOr<const Distribution*> { return &target[i]; };
  const auto coin = [](int) { return 0.5f; };
  const auto draw_weights = [&](absl::Span<const float> weights, int) {
    return DrawFromWeights(weights, random, place);
  };
  const auto draw_row = [&](const Distribution& d, int) { return Draw(d, random, place); };
  const RoundNoise noise{coin, draw_weights, draw_row};
  HostSlots host(tokens, row, draft, noise);
  const int last = static_cast<int>(tokens.size()) - 1;
  for (int i = 0; i <= last; ++i) {
    TANDEM_CHECK(host.Reach(i).ok());
    if (i == last) break;
    survival = std::min(1.0, survival * (double{host.TargetOf(i)} / host.DraftOf(i)));
  }
  SlotAnswer answer{.target = host.TargetOf(last), .draft = host.DraftOf(last)};
  if (slot.draw == SlotDraw::kTarget) {
    answer.drawn = host.DrawTarget(last);
    return answer;
  }
  const double scale = slot.draw == SlotDraw::kBlockResidual ? survival : 1.0;
  answer.residual_mass = host.ResidualMass(last, scale);
  answer.drawn = host.DrawResidual(last, scale);
  return answer;
}

// Two worlds, of which the second keeps rows on a device.
struct Worlds {
  explicit Worlds(FakeModel::Options options = {}) : on_host(options) {
    options.sampler = &sampler;
    on_device = std::make_unique<World>(options);
  }
  FakeSampler sampler{AnswerOnHost};
  World on_host;
  std::unique_ptr<World> on_device;
};

// Puts rows of a proposal on the device.
void PutRowsOnDevice(Backend* backend, Proposal* proposal) {
  DeviceRowPool pool;
  for (Distribution& row : proposal->drawn_from) {
    if (row.only >= 0) continue;
    const std::vector<float> probs = row.probs;
    TANDEM_CHECK(pool.Put(backend, static_cast<int>(probs.size()), &row).ok());
    std::copy(probs.begin(), probs.end(), DeviceProbs(row));
  }
}

// Rounds whose rows stay on a device have the verdicts of those on the host: by every rule, behind
// drafts of rows and of single tokens, with unknown tokens and rows that are no distribution.
TEST(DeviceSlots, JudgesRowsOnADeviceAsOnTheHost) {
  int num_failed = 0, num_accepted = 0;
  for (const AcceptanceRule rule : kAllRules) {
    for (uint64_t seed = 0; seed < 40; ++seed) {
      SCOPED_TRACE(absl::StrCat(View(NameOf(rule)), " seed ", seed));
      const size_t poisoned = seed % 4 == 3 ? 4 + seed % 3 : 0;
      Worlds worlds({.poisoned = [poisoned](absl::Span<const TokenId> context) {
        return context.size() == poisoned;
      }});
      VerifyResult results[2];
      for (World* world : {&worlds.on_host, worlds.on_device.get()}) {
        Sequence* s = world->Add({1, 2, 3, 4}, {.temperature = 0.5f, .top_k = 5}, seed);
        s->rule = rule;
        world->Propose(s, static_cast<int>(seed % 5));
        if (seed % 3 == 1 && s->proposal.tokens.size() > 1) {
          s->proposal.drawn_from[1] = {.only = s->proposal.tokens[1]};
        }
        if (seed % 7 == 5 && s->proposal.tokens.size() > 2) {
          s->proposal.tokens[2] = 1000;
          s->proposal.drawn_from[2] = {.only = 1000};
        }
        const bool on_device = world == worlds.on_device.get();
        if (on_device) PutRowsOnDevice(world->model().device_rows().backend, &s->proposal);
        results[on_device ? 1 : 0] = world->Verify(s);
      }
      EXPECT_EQ(worlds.sampler.num_calls(), 1);
      EXPECT_EQ(results[1].status, results[0].status);
      EXPECT_EQ(results[1].judged, results[0].judged);
      EXPECT_EQ(results[1].verdict.num_accepted, results[0].verdict.num_accepted);
      EXPECT_EQ(results[1].verdict.next, results[0].verdict.next);
      num_failed += results[0].status.ok() ? 0 : 1;
      num_accepted += results[0].verdict.num_accepted;
    }
  }
  EXPECT_GT(num_failed, 5);
  EXPECT_GT(num_accepted, 50);
}

// Who looks at rows gets them, and the same verdict; drafts' rows come along.
TEST(DeviceSlots, BringsRowsThatAreLookedAt) {
  Worlds worlds;
  VerifyResult results[2];
  for (World* world : {&worlds.on_host, worlds.on_device.get()}) {
    Sequence* s = world->Add({1, 2, 3}, {.temperature = 0.5f}, 3);
    s->logprobs.num_top = 2;
    world->Propose(s, 3);
    const bool on_device = world == worlds.on_device.get();
    if (on_device) PutRowsOnDevice(world->model().device_rows().backend, &s->proposal);
    results[on_device ? 1 : 0] = world->Verify(s);
    for (const Distribution& row : s->proposal.drawn_from) EXPECT_EQ(row.device_size, 0);
  }
  EXPECT_EQ(worlds.sampler.num_calls(), 0);
  EXPECT_EQ(results[1].verdict.num_accepted, results[0].verdict.num_accepted);
  EXPECT_EQ(results[1].verdict.next, results[0].verdict.next);
  ASSERT_EQ(results[1].logprobs.size(), results[0].logprobs.size());
  for (size_t i = 0; i < results[0].logprobs.size(); ++i) {
    EXPECT_EQ(results[1].logprobs[i].logprob, results[0].logprobs[i].logprob);
  }
}

// Penalties, drafts on the host and judges of one's own want rows on the host, too.
TEST(DeviceSlots, LeavesRowsOnADeviceOnlyToTheRules) {
  Worlds worlds;
  World& world = *worlds.on_device;
  Sequence* penalized = world.Add({1, 2, 3}, Penalized());
  Sequence* greedy = world.Add({1, 2, 3}, {.temperature = 0.0f});
  Sequence* drafted_on_host = world.Add({1, 2, 3});
  world.Propose(drafted_on_host, 2);
  for (Sequence* s : {penalized, greedy, drafted_on_host}) {
    EXPECT_TRUE(world.Verify(s).status.ok());
    EXPECT_EQ(worlds.sampler.num_calls(), 0);
  }
  FakeSampler sampler(AnswerOnHost);
  FakeCache cache(3, 100);
  FakeModel model(cache.get(), {.sampler = &sampler});
  Verifier with_judge(
      &model, [](AcceptanceRule rule, absl::Span<const TokenId> tokens, TargetRows target,
                 absl::Span<const Distribution> draft,
                 const RoundNoise& noise) { return Judge(rule, tokens, target, draft, noise); });
  Sequence s{.context = {1, 2, 3}, .kv = cache->NewSequence()};
  const VerifyRequest request = s.Request(3);
  VerifyResult result;
  EXPECT_TRUE(with_judge.Verify({&request, 1}, {&result, 1}).ok());
  EXPECT_TRUE(result.judged && result.status.ok());
  EXPECT_EQ(sampler.num_calls(), 0);
}

// Several sequences of a pass, some of them still reading, are asked about in one call.
TEST(DeviceSlots, AsksADeviceOnceForAPass) {
  Worlds worlds;
  std::vector<VerifyResult> results[2];
  for (World* world : {&worlds.on_host, worlds.on_device.get()}) {
    const bool on_device = world == worlds.on_device.get();
    std::vector<Sequence*> sequences;
    std::vector<int> num_fed;
    for (int i = 0; i < 4; ++i) {
      Sequence* s = world->Add({1, 2, 3, i}, {.temperature = i == 2 ? 0.0f : 1.0f}, i);
      s->rule = kAllRules[i % 3];
      if (i != 2) world->Propose(s, i);
      if (on_device) PutRowsOnDevice(world->model().device_rows().backend, &s->proposal);
      sequences.push_back(s);
      num_fed.push_back(i == 1 ? 2 : 4);
    }
    ASSERT_TRUE(world->Verify(sequences, &results[on_device ? 1 : 0], num_fed).ok());
  }
  EXPECT_EQ(worlds.sampler.num_calls(), 1);
  EXPECT_EQ(worlds.sampler.num_slots(), 1 + 4);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(results[1][i].judged, results[0][i].judged);
    EXPECT_EQ(results[1][i].verdict.num_accepted, results[0][i].verdict.num_accepted);
    EXPECT_EQ(results[1][i].verdict.next, results[0][i].verdict.next);
  }
}

TEST(DeviceSlots, ADevicesFailureLeavesNoTrace) {
  Worlds worlds;
  World& world = *worlds.on_device;
  worlds.sampler.set_fail_at(0);
  Sequence* s = world.Add({1, 2, 3});
  std::vector<VerifyResult> results;
  EXPECT_THAT(world.Verify({s}, &results).message(), HasSubstr("injected"));
  EXPECT_EQ(s->kv.length(), 0);
  EXPECT_TRUE(world.Verify(s).judged);
}

}  // namespace
}  // namespace tandem
