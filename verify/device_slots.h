#ifndef TANDEM_VERIFY_DEVICE_SLOTS_H_
#define TANDEM_VERIFY_DEVICE_SLOTS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/philox.h"
#include "draft/proposal.h"
#include "model/device_sampling.h"
#include "verify/acceptance.h"

namespace tandem {

// The places of the random numbers of one round.
struct RoundPlaces {
  uint32_t committed = 0;  // committed tokens at the start of the round

  RandomPlace At(RandomStream stream, int slot) const {
    return {.stream = stream, .position = committed, .slot = static_cast<uint32_t>(slot)};
  }
  // The place of the target's own choice.
  RandomPlace Target(int slot) const {
    return {.stream = RandomStream::kTarget, .position = committed + slot};
  }
};

// The slots of a round whose rows are on a device. The device computes all values that the rule can
// read in one call, before the rule runs, so that one small copy to the host serves all drafts of a
// pass. The rules still decide on the host.
class DeviceSlots final : public Slots {
 public:
  // One draft. Its target rows are the last pass's rows [first_row, first_row + num_rows). Each
  // draft row is on the device or has all its mass on one token. The pointers must outlive this
  // object.
  struct Draft {
    const Proposal* proposal = nullptr;
    const SamplingParams* sampling = nullptr;
    RandomSource random{0};
    RoundPlaces places;
    AcceptanceRule rule = AcceptanceRule::kToken;
    int first_row = 0;
    int num_rows = 0;
  };

  // Whether the rows for this draft can stay on the device.
  static bool CanHold(const Proposal& proposal);
  // Makes the slots of all drafts with one call of the sampler. Turns the rows of logits into
  // distributions in place.
  static absl::StatusOr<std::vector<DeviceSlots>> Ask(const DeviceRows& rows,
                                                      absl::Span<const Draft> drafts);

  absl::Status Reach(int slot) override;
  int num_reached() const override;
  TokenId Token(int slot) override { return draft_.proposal->tokens[slot]; }
  float TargetOf(int slot) override { return answers_[slot].target; }
  float DraftOf(int slot) override { return answers_[slot].draft; }
  double ResidualMass(int slot, double) override { return answers_[slot].residual_mass; }
  TokenId DrawResidual(int slot, double) override { return answers_[slot].drawn; }
  TokenId DrawTarget(int slot) override { return answers_[slot].drawn; }
  float AcceptUniform(int slot) override;
  const Distribution& TargetRow(int slot) override;
  const Distribution& DraftRow(int slot) override;
  TokenId DrawFrom(absl::Span<const float> weights, int slot) override;

 private:
  DeviceSlots(const DeviceRows& rows, const Draft& draft) : rows_(rows), draft_(draft) {}
  SlotTask TaskOf(int slot, int first_slot) const;

  DeviceRows rows_;
  Draft draft_;
  std::vector<RowState> states_;                        // [num_rows]
  std::vector<SlotAnswer> answers_;                     // [num_rows]
  std::vector<Distribution> target_rows_, draft_rows_;  // rows copied to the host
};

}  // namespace tandem

#endif  // TANDEM_VERIFY_DEVICE_SLOTS_H_
