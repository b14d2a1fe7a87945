// Sampling on the device, which must have the host's bits.
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "base/philox.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/cuda/cuda_testing.h"
#include "kernels/row_sums.h"
#include "model/sampling.h"
#include "tests/simt/sort_rows.h"
#include "verify/acceptance.h"

namespace tandem::cuda {
namespace {

constexpr float kInfinite = std::numeric_limits<float>::infinity();

class DeviceSampler : public CudaTest {
 protected:
  Sampler& sampler() { return *backend().sampler(); }

  // Returns the device's distribution of `logits`, computed in place or in a second buffer. Sets
  // `state`; returns an empty vector if the row is not valid.
  std::vector<float> MakeOnDevice(const std::vector<float>& logits, const SamplingParams& params,
                                  RowState* state, bool in_place = false) {
    Buffer from = Upload(logits);
    Buffer beside = Upload(std::vector<float>(logits.size(), NAN));
    const Buffer& to = in_place ? from : beside;
    const RowTask row{.logits = static_cast<const float*>(from.data()),
                      .probs = static_cast<float*>(to.data()),
                      .size = static_cast<int>(logits.size()),
                      .inverse_temperature = 1.0f / params.temperature,
                      .top_k = params.top_k,
                      .min_p = params.min_p,
                      .enough = params.top_p < 1.0f ? UnitsToReach(params.top_p) : 0};
    const absl::Status status = sampler().Sample({&row, 1}, {}, {state, 1}, {});
    EXPECT_TRUE(status.ok()) << status.message();
    return Download<float>(to);
  }
};

std::vector<float> RandomLogits(int size, float spread, uint32_t seed) {
  std::mt19937 random(seed);
  const TestMatrix row = TestMatrix::Random(1, size, random, spread);
  return {row.row(0), row.row(0) + size};
}

void ExpectSameBits(const std::vector<float>& got, const std::vector<float>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t v = 0; v < got.size(); ++v) {
    ASSERT_EQ(std::bit_cast<uint32_t>(got[v]), std::bit_cast<uint32_t>(want[v]))
        << v << ": " << got[v] << " for " << want[v];
  }
}

TEST_F(DeviceSampler, DistributionsHaveTheHostsBits) {
  const SamplingParams cases[] = {
      {.temperature = 1.0f},
      {.temperature = 0.3f},
      {.temperature = 1.7f, .top_k = 1},
      {.temperature = 0.8f, .top_k = 40},
      {.temperature = 0.8f, .top_p = 0.9f},
      {.temperature = 1.0f, .top_p = 0.999999f},
      {.temperature = 1.0f, .top_p = 1e-6f},
      {.temperature = 1.0f, .min_p = 0.1f},
      {.temperature = 0.7f, .top_k = 50, .top_p = 0.95f, .min_p = 0.02f},
  };
  bool in_place = false;
  for (const int size : {1, 7, 320, 2049, 5000}) {
    for (const float spread : {0.5f, 8.0f}) {
      const std::vector<float> logits = RandomLogits(size, spread, size);
      for (const SamplingParams& params : cases) {
        SCOPED_TRACE(testing::Message()
                     << size << " spread " << spread << " T " << params.temperature << " k "
                     << params.top_k << " p " << params.top_p << " min " << params.min_p);
        Distribution want;
        ASSERT_TRUE(MakeDistribution(logits, params, nullptr, &want).ok());
        RowState state;
        in_place = !in_place;
        const std::vector<float> got = MakeOnDevice(logits, params, &state, in_place);
        EXPECT_EQ(state, RowState::kDistribution);
        ExpectSameBits(got, want.probs);
      }
    }
  }
}

// If entries at the edge of a cut are equal, the lowest ids are kept, across several strides of the
// block.
TEST_F(DeviceSampler, TiesGoToTheLowestIds) {
  std::vector<float> logits(3000);
  for (size_t v = 0; v < logits.size(); ++v) logits[v] = static_cast<float>(v * 7 % 3);
  logits[1] = -0.0f;
  for (const SamplingParams& params :
       {SamplingParams{.top_k = 5}, SamplingParams{.top_k = 1500}, SamplingParams{.top_k = 2500},
        SamplingParams{.top_p = 0.5f}, SamplingParams{.top_p = 0.95f},
        SamplingParams{.min_p = 1.0f}}) {
    for (const bool in_place : {false, true}) {
      Distribution want;
      ASSERT_TRUE(MakeDistribution(logits, params, nullptr, &want).ok());
      RowState state;
      ExpectSameBits(MakeOnDevice(logits, params, &state, in_place), want.probs);
    }
  }
}

// A cut keeps a prefix of the row as a library sorts it.
TEST_F(DeviceSampler, CutsKeepAPrefixOfTheSortedRow) {
  constexpr int kRows = 4, kSize = 3000;
  std::vector<float> rows;  // [2 * kRows, kSize]: logits, with ties, then their probabilities
  RowState state;
  for (int r = 0; r < kRows; ++r) {
    std::vector<float> logits = RandomLogits(kSize, 3.0f, r);
    for (float& logit : logits) logit = std::nearbyint(logit * (1 << r)) / (1 << r);
    rows.insert(rows.end(), logits.begin(), logits.end());
  }
  const auto row_of = [&](int r) {
    return std::vector<float>(rows.begin() + r * kSize, rows.begin() + (r + 1) * kSize);
  };
  for (int r = 0; r < kRows; ++r) {
    const std::vector<float> probs = MakeOnDevice(row_of(r), {}, &state);
    rows.insert(rows.end(), probs.begin(), probs.end());
  }
  std::vector<int> places(rows.size());
  ASSERT_TRUE(simt::SortRows(rows.data(), 2 * kRows, kSize, places.data()));

  // Returns whether exactly the first `num` positions of sorted row r are kept.
  const auto keeps = [&](const std::vector<float>& got, int r, int num) {
    int matching = 0;
    for (int i = 0; i < kSize; ++i) matching += (got[places[r * kSize + i]] > 0.0f) == (i < num);
    return matching == kSize;
  };
  for (int r = 0; r < kRows; ++r) {
    for (const int top_k : {1, 2, 37, 1500, kSize - 1}) {
      const std::vector<float> got = MakeOnDevice(row_of(r), {.top_k = top_k}, &state);
      EXPECT_TRUE(keeps(got, r, top_k)) << "row " << r << " k " << top_k;
      EXPECT_FALSE(keeps(got, r, top_k + 1) || keeps(got, r, top_k - 1));
    }
    for (const float top_p : {1e-6f, 0.3f, 0.9f, 0.999f}) {
      const std::vector<float> probs = row_of(kRows + r);
      int num = 0;
      for (uint64_t units = 0; units < UnitsToReach(top_p); ++num) {
        units += InUnits(probs[places[(kRows + r) * kSize + num]]);
      }
      const std::vector<float> got = MakeOnDevice(row_of(r), {.top_p = top_p}, &state);
      EXPECT_TRUE(keeps(got, kRows + r, num)) << "row " << r << " p " << top_p;
    }
  }
}

TEST_F(DeviceSampler, InvalidRowsAreDistinguished) {
  const auto state_of = [this](std::vector<float> logits, float temperature) {
    RowState state;
    MakeOnDevice(logits, {.temperature = temperature}, &state);
    return state;
  };
  EXPECT_EQ(state_of({1, 2, -kInfinite}, 1), RowState::kDistribution);
  EXPECT_EQ(state_of({1, NAN, 2}, 1), RowState::kNoDistribution);
  EXPECT_EQ(state_of({1, kInfinite, 2}, 1), RowState::kNoDistribution);
  EXPECT_EQ(state_of({-kInfinite, -kInfinite}, 1), RowState::kNoDistribution);
  EXPECT_EQ(state_of({3e38f, 0}, 1e-3f), RowState::kOverflows);
}

// Queries about the slots of a draft, on the device and on the host.
class DeviceSlots : public DeviceSampler {
 protected:
  struct Round {
    std::vector<Distribution> target;  // one more than tokens
    std::vector<Distribution> draft;
    std::vector<TokenId> tokens;
  };

  static std::vector<float> Probs(int size, float spread, uint32_t seed,
                                  const SamplingParams& params = {}) {
    Distribution distribution;
    TANDEM_CHECK(
        MakeDistribution(RandomLogits(size, spread, seed), params, nullptr, &distribution).ok());
    return distribution.probs;
  }

  std::vector<SlotAnswer> Ask(const Round& round, SlotDraw draw, RandomStream stream) {
    std::vector<Buffer> rows;
    const auto upload = [&](const Distribution& d) {
      rows.push_back(Upload(d.probs));
      return static_cast<const float*>(rows.back().data());
    };
    std::vector<SlotTask> slots;
    for (size_t i = 0; i < round.target.size(); ++i) {
      const bool is_bonus = i == round.tokens.size();
      SlotTask slot{.target = upload(round.target[i]),
                    .target_size = static_cast<int>(round.target[i].probs.size()),
                    .draw = is_bonus ? SlotDraw::kTarget : draw,
                    .key = random_.seed()};
      if (!is_bonus) {
        const Distribution& q = round.draft[i];
        slot.draft_only = q.only;
        if (q.only < 0) {
          slot.draft = upload(q);
          slot.draft_size = static_cast<int>(q.probs.size());
        }
        slot.token = round.tokens[i];
      }
      const auto counter = RandomSource::FirstCounter(PlaceOf(stream, static_cast<int>(i)));
      std::copy(counter.begin(), counter.end(), slot.counter);
      slots.push_back(slot);
    }
    std::vector<SlotAnswer> answers(slots.size());
    const absl::Status status = sampler().Sample({}, slots, {}, absl::MakeSpan(answers));
    EXPECT_TRUE(status.ok()) << status.message();
    return answers;
  }

  static RandomPlace PlaceOf(RandomStream stream, int slot) {
    return {.stream = stream, .position = 41, .slot = static_cast<uint32_t>(slot)};
  }

  // Compares each answer with that of the host's slots.
  void ExpectHosts(const Round& round, SlotDraw draw) {
    const RandomStream stream = RandomStream::kResidual;
    const std::vector<SlotAnswer> got = Ask(round, draw, stream);
    const auto row = [&](int slot) -> absl::StatusOr<const Distribution*> {
      return &round.target[slot];
    };
    const auto no_coin = [](int) { return 0.5f; };
    const auto draw_weights = [&](absl::Span<const float> weights, int slot) {
      return DrawFromWeights(weights, random_, PlaceOf(stream, slot));
    };
    const auto draw_row = [&](const Distribution& target, int slot) {
      return Draw(target, random_, PlaceOf(stream, slot));
    };
    const RoundNoise noise{no_coin, draw_weights, draw_row};
    HostSlots want(round.tokens, row, round.draft, noise);
    double survival = 1.0;
    for (int i = 0; i <= static_cast<int>(round.tokens.size()); ++i) {
      SCOPED_TRACE(testing::Message() << "slot " << i << " draw " << static_cast<int>(draw));
      ASSERT_TRUE(want.Reach(i).ok());
      if (i == static_cast<int>(round.tokens.size()) || draw == SlotDraw::kTarget) {
        EXPECT_EQ(got[i].drawn, want.DrawTarget(i));
      } else {
        const double scale = draw == SlotDraw::kBlockResidual ? survival : 1.0;
        EXPECT_EQ(got[i].residual_mass, want.ResidualMass(i, scale));
        EXPECT_EQ(got[i].drawn, want.DrawResidual(i, scale));
      }
      if (i == static_cast<int>(round.tokens.size())) break;
      EXPECT_EQ(got[i].target, want.TargetOf(i));
      EXPECT_EQ(got[i].draft, want.DraftOf(i));
      survival = std::min(1.0, survival * (double{want.TargetOf(i)} / want.DraftOf(i)));
    }
  }

  RandomSource random_{0xFEDCBA9876543210ull};
};

TEST_F(DeviceSlots, AnswersHaveTheHostsBits) {
  std::mt19937 random(3);
  for (const int size : {5, 320, 2500}) {
    for (const int draft_size : {size, size / 2, size + 100}) {
      Round round;
      for (int i = 0; i < 4; ++i) {
        const SamplingParams params{.top_k = i == 2 ? 3 : 0};
        round.target.push_back({.probs = Probs(size, 3.0f, random())});
        round.draft.push_back({.probs = Probs(draft_size, 3.0f, random(), params)});
        const auto source = RandomSource(random());
        round.tokens.push_back(Draw(round.draft.back(), source, PlaceOf(RandomStream::kDraft, i)));
      }
      // A one-hot draft, and a token that the target's row does not have.
      round.target.push_back({.probs = Probs(size, 3.0f, random())});
      round.draft.push_back({.only = size - 1});
      round.tokens.push_back(size - 1);
      round.target.push_back({.probs = Probs(size, 3.0f, random())});
      round.draft.push_back({.only = size + 3});
      round.tokens.push_back(size + 3);
      round.target.push_back({.probs = Probs(size, 3.0f, random())});
      for (const SlotDraw draw :
           {SlotDraw::kTarget, SlotDraw::kTokenResidual, SlotDraw::kBlockResidual}) {
        SCOPED_TRACE(testing::Message() << size << ", draft of " << draft_size);
        ExpectHosts(round, draw);
      }
    }
  }
}

// If the draft is the target, the residual is empty, and the token is drawn from the target's row.
TEST_F(DeviceSlots, AnEmptyResidualIsDrawnFromTheTarget) {
  Round round;
  const std::vector<float> row = Probs(700, 2.0f, 5);
  round.target = {{.probs = row}, {.probs = row}};
  round.draft = {{.probs = row}};
  round.tokens = {17};
  ExpectHosts(round, SlotDraw::kTokenResidual);
  EXPECT_EQ(Ask(round, SlotDraw::kTokenResidual, RandomStream::kResidual)[0].residual_mass, 0.0);
}

// Drafts in the same call do not affect each other.
TEST_F(DeviceSlots, AnswersAreTheSameAfterAnotherDraft) {
  std::vector<Buffer> rows;
  std::vector<SlotTask> slots;
  for (int i = 0; i < 4; ++i) {
    SlotTask slot{.target_size = 50, .draft_size = 50, .token = i};
    for (const float** row : {&slot.target, &slot.draft}) {
      rows.push_back(Upload(Probs(50, 3.0f, static_cast<uint32_t>(rows.size()))));
      *row = static_cast<const float*>(rows.back().data());
    }
    slot.draw = SlotDraw::kBlockResidual;
    slots.push_back(slot);
  }
  std::vector<SlotAnswer> alone(4), behind(8);
  ASSERT_TRUE(sampler().Sample({}, slots, {}, absl::MakeSpan(alone)).ok());
  std::vector<SlotTask> both = {slots[3], slots[2], slots[1], slots[0]};
  both.insert(both.end(), slots.begin(), slots.end());
  for (int i = 4; i < 8; ++i) both[i].first_slot = 4;
  ASSERT_TRUE(sampler().Sample({}, both, {}, absl::MakeSpan(behind)).ok());
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(behind[4 + i].residual_mass, alone[i].residual_mass) << i;
    EXPECT_EQ(behind[4 + i].drawn, alone[i].drawn) << i;
  }
}

TEST_F(DeviceSlots, DrawsFollowTheirWeights) {
  const std::vector<float> row = {0.5f, 0.0f, 0.375f, 0.125f};
  Buffer target = Upload(row);
  constexpr int kDraws = 150;
  std::vector<SlotTask> slots(kDraws);
  for (int i = 0; i < kDraws; ++i) {
    slots[i] = {.target = static_cast<const float*>(target.data()), .target_size = 4, .key = 9};
    slots[i].counter[0] = i;
  }
  std::vector<SlotAnswer> answers(kDraws);
  ASSERT_TRUE(sampler().Sample({}, slots, {}, absl::MakeSpan(answers)).ok());
  std::vector<int> counts(4);
  for (int i = 0; i < kDraws; ++i) {
    ++counts[answers[i].drawn];
    const RandomPlace place{.position = static_cast<uint32_t>(i)};
    EXPECT_EQ(answers[i].drawn, DrawFromWeights(row, RandomSource(9), place));
  }
  EXPECT_EQ(counts[1], 0);
  for (int v = 0; v < 4; ++v) {  // five standard deviations
    const double sigma = std::sqrt(kDraws * row[v] * (1 - row[v]));
    EXPECT_NEAR(counts[v], kDraws * row[v], 5 * sigma) << v;
  }
}

TEST_F(DeviceSlots, DrawingFromZeroWeightsGivesNoToken) {
  Buffer target = Upload(std::vector<float>(40));
  const SlotTask slot{.target = static_cast<const float*>(target.data()), .target_size = 40};
  SlotAnswer answer;
  ASSERT_TRUE(sampler().Sample({}, {&slot, 1}, {}, {&answer, 1}).ok());
  EXPECT_EQ(answer.drawn, -1);
}

}  // namespace
}  // namespace tandem::cuda
