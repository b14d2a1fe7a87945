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

// Where the random numbers of one round lie.
struct RoundPlaces {
  uint32_t committed = 0;  // tokens when it began

  RandomPlace At(RandomStream stream, int slot) const {
    return {.stream = stream, .position = committed, .slot = static_cast<uint32_t>(slot)};
  }
  // Of the target's own choice.
  RandomPlace Target(int slot) const {
    return {.stream = RandomStream::kTarget, .position = committed + slot};
  }
};

// A round's slots whose rows are on a device. What rules may ask about each is computed there in
// one go, before they ask, so that it is one small copy to the host for all drafts of a pass. Their
// decisions are made here, by the rules themselves.
class DeviceSlots final : public Slots {
 public:
  // One draft, whose rows are the last pass's from `first_row` on, `num_rows` of them, and each on
  // the device or of one token. All must outlive this.
  struct Draft {
    const Proposal* proposal = nullptr;
    const SamplingParams* sampling = nullptr;
    RandomSource random{0};
    RoundPlaces places;
    AcceptanceRule rule = AcceptanceRule::kToken;
    int first_row = 0;
    int num_rows = 0;
  };

  // Whether rows for this draft can stay on the device.
  static bool CanHold(const Proposal& proposal);
  // One for each draft, in one call of the sampler. Rows of logits become distributions in place.
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
  std::vector<SlotAnswer> answers_;                     // likewise
  std::vector<Distribution> target_rows_, draft_rows_;  // brought to the host
};

}  // namespace tandem

#endif  // TANDEM_VERIFY_DEVICE_SLOTS_H_
