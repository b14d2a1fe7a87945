// A device's sampler that is the host: what it computes is what the host's own functions say, and
// it counts how often it was asked.
#ifndef TANDEM_TESTS_FAKE_SAMPLER_H_
#define TANDEM_TESTS_FAKE_SAMPLER_H_

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "base/check.h"
#include "kernels/row_sampler.h"
#include "model/sampling.h"

namespace tandem {

class FakeSampler final : public RowSampler {
 public:
  using Answer = std::function<SlotAnswer(absl::Span<const SlotTask> slots, int slot)>;
  explicit FakeSampler(Answer answer = DrawTarget) : answer_(std::move(answer)) {}

  static SlotAnswer DrawTarget(absl::Span<const SlotTask> slots, int index) {
    const SlotTask& slot = slots[index];
    TANDEM_CHECK(slot.draw == SlotDraw::kTarget);
    return {.drawn = DrawFromWeights({slot.target, static_cast<size_t>(slot.target_size)},
                                     RandomSource(slot.key), PlaceOf(slot))};
  }
  static RandomPlace PlaceOf(const SlotTask& slot) {
    return {.stream = static_cast<RandomStream>(slot.counter[1] & 0xFF),
            .position = slot.counter[0],
            .slot = slot.counter[1] >> 8};
  }

  int num_calls() const { return num_calls_; }
  int num_slots() const { return num_slots_; }
  // The number of a call that fails, counted from 0; -1 for none.
  void set_fail_at(int call) { fail_at_ = call; }

  // Temperatures are powers of two, whose inverses are exact.
  absl::Status Sample(absl::Span<const RowTask> rows, absl::Span<const SlotTask> slots,
                      absl::Span<RowState> states, absl::Span<SlotAnswer> answers) override {
    TANDEM_CHECK(rows.size() == states.size() && slots.size() == answers.size());
    if (num_calls_++ == fail_at_) return absl::InternalError("injected");
    num_slots_ += static_cast<int>(slots.size());
    for (size_t i = 0; i < rows.size(); ++i) states[i] = Make(rows[i]);
    for (size_t i = 0; i < slots.size(); ++i) answers[i] = answer_(slots, static_cast<int>(i));
    return absl::OkStatus();
  }

 private:
  static RowState Make(const RowTask& row) {
    const SamplingParams params{
        .temperature = 1.0f / row.inverse_temperature,
        .top_k = row.top_k,
        .top_p = row.enough == 0
                     ? 1.0f
                     : static_cast<float>(std::ldexp(static_cast<double>(row.enough), -60)),
        .min_p = row.min_p};
    Distribution made;
    const absl::Status status =
        MakeDistribution({row.logits, static_cast<size_t>(row.size)}, params, nullptr, &made);
    if (status.ok()) std::copy(made.probs.begin(), made.probs.end(), row.probs);
    for (const RowState state : {RowState::kDistribution, RowState::kNoDistribution}) {
      if (status == StatusOf(state)) return state;
    }
    return RowState::kOverflows;
  }

  Answer answer_;
  int num_calls_ = 0;
  int num_slots_ = 0;
  int fail_at_ = -1;
};

}  // namespace tandem

#endif  // TANDEM_TESTS_FAKE_SAMPLER_H_
