// The same verification with rows on the host and with rows on a device.
#ifndef TANDEM_TESTS_DEVICE_WORLD_H_
#define TANDEM_TESTS_DEVICE_WORLD_H_

#include <algorithm>
#include <memory>
#include <vector>

#include "base/check.h"
#include "model/device_sampling.h"
#include "tests/fake_sampler.h"
#include "tests/verify_world.h"

namespace tandem {

// Returns the answer that a device must give, computed with the host's slots.
inline SlotAnswer AnswerOnHost(absl::Span<const SlotTask> slots, int index) {
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

// Two equal worlds, except that the second keeps rows on a device.
struct Worlds {
  explicit Worlds(FakeModel::Options options = {}, const JudgeFunction& judge = Judge)
      : on_host(options, 300, judge) {
    options.sampler = &sampler;
    on_device = std::make_unique<VerifyWorld>(options, 300, judge);
  }
  FakeSampler sampler{AnswerOnHost};
  VerifyWorld on_host;
  std::unique_ptr<VerifyWorld> on_device;
};

// Moves the rows of a proposal to the device.
inline void PutRowsOnDevice(Backend* backend, Proposal* proposal) {
  DeviceRowPool pool;
  for (Distribution& row : proposal->drawn_from) {
    if (row.only >= 0) continue;
    const std::vector<float> probs = row.probs;
    TANDEM_CHECK(pool.Put(backend, static_cast<int>(probs.size()), &row).ok());
    std::copy(probs.begin(), probs.end(), DeviceProbs(row));
  }
}

}  // namespace tandem

#endif  // TANDEM_TESTS_DEVICE_WORLD_H_
