// Tests of ModelDrafter with rows that stay on a device.
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/device_sampling.h"
#include "tests/drafter_world.h"
#include "tests/fake_sampler.h"

namespace tandem {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

// Drafts drawn on the device equal those that the host draws.
TEST(ModelDrafterOnDevice, DrawsTheSameTokensAsTheHost) {
  for (const int target_vocab : {7, 5, 9}) {
    for (const DraftNoise noise : {DraftNoise::kOwn, DraftNoise::kTargets}) {
      FakeSampler sampler;
      DrafterWorld world({.model = {.sampler = &sampler}, .target_vocab = target_vocab});
      std::vector<DrafterWorld::Sequence*> sequences = {
          world.Add({1, 2, 3}, {.temperature = 0.5f, .top_p = 0.9f}, 4),
          world.Add({3, 4}, {.temperature = 0.0f}),
          world.Add({1, 2, 3, 4}, {.temperature = 1.0f, .presence_penalty = 0.5f}),
          world.Add({4, 4, 4}, {.temperature = 2.0f, .top_k = 4}, 5)};
      for (auto* s : sequences) s->noise = noise;
      ASSERT_TRUE(world.Propose(sequences, {4, 3, 2, 1}).ok());
      EXPECT_EQ(sampler.num_calls(), 4);
      EXPECT_EQ(sampler.num_slots(), 4 + 3 + 1);
      EXPECT_EQ(sampler.num_collected(), 1);
      for (auto* s : sequences) {
        const bool on_device = s == sequences.front() || s == sequences.back();
        for (const Distribution& row : s->proposal.drawn_from) {
          EXPECT_EQ(row.device_size > 0, on_device);
        }
        world.ExpectDrawnAsRecorded(*s);
      }
      EXPECT_THAT(sequences[0]->proposal.tokens, SizeIs(4));
      EXPECT_THAT(sequences[3]->proposal.tokens, SizeIs(1));
    }
  }
}

TEST(ModelDrafterOnDevice, InvalidRowEndsTheDraft) {
  FakeSampler sampler;
  DrafterWorld world({.model = {.sampler = &sampler, .poisoned = [](absl::Span<const TokenId> c) {
                                  return c.size() == 5;
                                }}});
  auto* s = world.Add({1, 2, 3});
  EXPECT_THAT(world.Draft(s, 4), SizeIs(2));
  EXPECT_EQ(sampler.num_collected(), 1);
  world.Learn(*s);
  EXPECT_EQ(world.Cached(*s),
            (std::vector<TokenId>{1, 2, 3, s->proposal.tokens[0], s->proposal.tokens[1]}));
}

TEST(ModelDrafterOnDevice, ReportsAFailureOfTheDevice) {
  FakeSampler sampler;
  sampler.set_fail_at(0);
  DrafterWorld world({.model = {.sampler = &sampler}});
  EXPECT_THAT(world.Propose({world.Add({1, 2, 3})}, {3}).message(), HasSubstr("injected"));
}

}  // namespace
}  // namespace tandem
