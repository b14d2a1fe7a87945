// A device sampler that runs on the host: it computes with the host's own functions and counts its
// calls.
#ifndef TANDEM_TESTS_FAKE_SAMPLER_H_
#define TANDEM_TESTS_FAKE_SAMPLER_H_

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kernels/backend.h"
#include "model/sampling.h"

namespace tandem {

class FakeSampler final : public Sampler {
 public:
  using Answer = std::function<SlotAnswer(absl::Span<const SlotTask> slots, int slot)>;
  explicit FakeSampler(Answer answer = DrawTarget) : answer_(std::move(answer)) {}

  static SlotAnswer DrawTarget(absl::Span<const SlotTask> slots, int index) {
    const SlotTask& slot = slots[index];
    const absl::Span<const float> row(slot.target, static_cast<size_t>(slot.target_size));
    if (slot.draw == SlotDraw::kLargest) return {.drawn = ArgMax(row)};
    TANDEM_CHECK(slot.draw == SlotDraw::kTarget);
    return {.drawn = DrawFromWeights(row, RandomSource(slot.key), PlaceOf(slot))};
  }
  static RandomPlace PlaceOf(const SlotTask& slot) {
    return {.stream = static_cast<RandomStream>(slot.counter[1] & 0xFF),
            .position = slot.counter[0],
            .slot = slot.counter[1] >> 8};
  }

  int num_calls() const { return num_calls_; }  // of Run
  int num_collected() const { return num_collected_; }
  int num_slots() const { return num_slots_; }
  // Index of the Collect call that fails; -1 for none.
  void set_fail_at(int call) { fail_at_ = call; }

  absl::Status Prepare(absl::Span<const RowTask> rows, absl::Span<const SlotTask> slots) override {
    rows_.assign(rows.begin(), rows.end());
    slots_.assign(slots.begin(), slots.end());
    states_.clear();
    answers_.clear();
    return absl::OkStatus();
  }
  void Run(int num_rows, int num_slots) override {
    ++num_calls_;
    for (int i = 0; i < num_rows; ++i) states_.push_back(Make(rows_.at(states_.size())));
    for (int i = 0; i < num_slots; ++i) {
      answers_.push_back(answer_(slots_, static_cast<int>(answers_.size())));
    }
    num_slots_ += num_slots;
  }
  void TakeDrawn(const int32_t* sources, int count, int32_t* ids) override {
    for (int i = 0; i < count; ++i) {
      if (sources[i] >= 0) ids[i] = answers_.at(sources[i]).drawn;
    }
  }
  absl::Status Collect(absl::Span<RowState> states, absl::Span<SlotAnswer> answers) override {
    if (num_collected_++ == fail_at_) return absl::InternalError("injected");
    TANDEM_CHECK(states.size() == states_.size() && states.size() == rows_.size());
    TANDEM_CHECK(answers.size() == answers_.size() && answers.size() == slots_.size());
    std::copy(states_.begin(), states_.end(), states.begin());
    std::copy(answers_.begin(), answers_.end(), answers.begin());
    return absl::OkStatus();
  }

 private:
  // Temperatures are powers of two, whose inverses are exact.
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
  std::vector<RowTask> rows_;
  std::vector<SlotTask> slots_;
  std::vector<RowState> states_;     // of the rows that ran
  std::vector<SlotAnswer> answers_;  // of the slots that ran
  int num_collected_ = 0;
  int num_calls_ = 0;
  int num_slots_ = 0;
  int fail_at_ = -1;
};

}  // namespace tandem

#endif  // TANDEM_TESTS_FAKE_SAMPLER_H_
