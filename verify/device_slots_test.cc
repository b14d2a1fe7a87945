#include "verify/device_slots.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/device_world.h"

namespace tandem {
namespace {

using testing::HasSubstr;
using testing::SizeIs;
using World = VerifyWorld;
using Sequence = VerifySequence;

// Rounds with rows on a device have the same verdicts as on the host: under every rule, for drafts
// with rows and with single tokens, with unknown tokens and invalid rows.
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

// If a request needs rows on the host, it gets them, with the draft's rows and the same verdict.
TEST(DeviceSlots, MovesRowsToTheHostIfNeeded) {
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

// Penalties, greedy decoding and draft rows on the host do not use the device's sampler.
TEST(DeviceSlots, KeepsRowsOnADeviceOnlyIfItCanSample) {
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
}

// A judge that computes from rows gets the device's rows, and draws with the round's noise.
TEST(DeviceSlots, GivesJudgesTheSameRowsAsTheHost) {
  struct Seen {
    std::vector<float> target, draft;
    TokenId only = -1;
    TokenId drawn = -1;
    bool operator==(const Seen&) const = default;
  };
  std::vector<Seen> seen[2];
  for (int on_device = 0; on_device < 2; ++on_device) {
    const JudgeFunction judge = [&](AcceptanceRule rule, int num_tokens,
                                    Slots& slots) -> absl::StatusOr<Verdict> {
      for (int i = 0; i < num_tokens; ++i) {
        RETURN_IF_ERROR(slots.Reach(i));
        const Distribution& draft = slots.DraftRow(i);
        const Distribution& target = slots.TargetRow(i);
        seen[on_device].push_back(
            {target.probs, draft.probs, draft.only, slots.DrawFrom(target.probs, i)});
      }
      return Judge(rule, num_tokens, slots);
    };
    Worlds worlds({}, judge);
    World& world = on_device == 1 ? *worlds.on_device : worlds.on_host;
    Sequence* s = world.Add({1, 2, 3}, {.temperature = 0.5f}, 3);
    world.Propose(s, 3);
    s->proposal.drawn_from[1] = {.only = s->proposal.tokens[1]};
    if (on_device == 1) PutRowsOnDevice(world.model().device_rows().backend, &s->proposal);
    EXPECT_TRUE(world.Verify(s).status.ok());
    EXPECT_EQ(worlds.sampler.num_calls(), on_device);
  }
  EXPECT_EQ(seen[1], seen[0]);
  EXPECT_THAT(seen[0], SizeIs(3));
}

// One call serves all sequences of a pass, even if some of them are still reading.
TEST(DeviceSlots, CallsTheDeviceOncePerPass) {
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

TEST(DeviceSlots, DeviceFailureLeavesNoTrace) {
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
