#include "verify/device_slots.h"

#include <algorithm>

#include "absl/algorithm/container.h"
#include "base/status_macros.h"

namespace tandem {

bool DeviceSlots::CanHold(const Proposal& proposal) {
  const auto rows = absl::MakeConstSpan(proposal.drawn_from).first(proposal.tokens.size());
  return absl::c_all_of(rows,
                        [](const Distribution& d) { return d.only >= 0 || d.device_size > 0; });
}

// Makes the device's task for `slot`: the draw and, under kBlock, the scale of the residual that
// the rule will use. The kernel tracks the survival of the earlier slots for that.
SlotTask DeviceSlots::TaskOf(int slot, int first_slot) const {
  SlotTask task{.target = LogitsOf(rows_, draft_.first_row + slot),
                .target_size = rows_.logits.cols,
                .first_slot = first_slot};
  const bool is_bonus = slot == static_cast<int>(draft_.proposal->tokens.size());
  if (is_bonus || draft_.rule == AcceptanceRule::kExactMatch) {
    SetNoise(draft_.random, draft_.places.Target(slot), &task);
  } else {
    task.draw =
        draft_.rule == AcceptanceRule::kBlock ? SlotDraw::kBlockResidual : SlotDraw::kTokenResidual;
    SetNoise(draft_.random, draft_.places.At(RandomStream::kResidual, slot), &task);
  }
  if (is_bonus) return task;
  task.token = draft_.proposal->tokens[slot];
  const Distribution& drawn_from = draft_.proposal->drawn_from[slot];
  task.draft_only = drawn_from.only;
  if (drawn_from.only < 0) {
    task.draft = DeviceProbs(drawn_from);
    task.draft_size = drawn_from.device_size;
  }
  return task;
}

absl::StatusOr<std::vector<DeviceSlots>> DeviceSlots::Ask(const DeviceRows& rows,
                                                          absl::Span<const Draft> drafts) {
  std::vector<DeviceSlots> asked;
  std::vector<RowTask> row_tasks;
  std::vector<SlotTask> slot_tasks;
  for (const Draft& draft : drafts) {
    asked.push_back(DeviceSlots(rows, draft));
    const int first_slot = static_cast<int>(slot_tasks.size());
    for (int i = 0; i < draft.num_rows; ++i) {
      const int row = draft.first_row + i;
      row_tasks.push_back(
          DistributionTask(rows, row, rows.logits.cols, *draft.sampling, LogitsOf(rows, row)));
      slot_tasks.push_back(asked.back().TaskOf(i, first_slot));
    }
  }
  if (drafts.empty()) return asked;
  std::vector<RowState> states(row_tasks.size());
  std::vector<SlotAnswer> answers(slot_tasks.size());
  RETURN_IF_ERROR(
      rows.sampler->Sample(row_tasks, slot_tasks, absl::MakeSpan(states), absl::MakeSpan(answers)));
  size_t next = 0;
  for (DeviceSlots& slots : asked) {
    const size_t end = next + slots.draft_.num_rows;
    slots.states_.assign(states.begin() + next, states.begin() + end);
    slots.answers_.assign(answers.begin() + next, answers.begin() + end);
    next = end;
  }
  return asked;
}

absl::Status DeviceSlots::Reach(int slot) { return StatusOf(states_[slot]); }

float DeviceSlots::AcceptUniform(int slot) {
  return draft_.random.Uniform(draft_.places.At(RandomStream::kAccept, slot));
}

int DeviceSlots::num_reached() const {
  return static_cast<int>(
      std::find_if(states_.begin(), states_.end(),
                   [](RowState state) { return state != RowState::kDistribution; }) -
      states_.begin());
}

const Distribution& DeviceSlots::TargetRow(int slot) {
  if (target_rows_.empty()) target_rows_.resize(draft_.num_rows);
  std::vector<float>& probs = target_rows_[slot].probs;
  if (probs.empty()) {
    probs = RowToHost(rows_.backend, LogitsOf(rows_, draft_.first_row + slot), rows_.logits.cols);
  }
  return target_rows_[slot];
}

const Distribution& DeviceSlots::DraftRow(int slot) {
  if (draft_rows_.empty()) draft_rows_ = draft_.proposal->drawn_from;
  MoveToHost(rows_.backend, &draft_rows_[slot]);
  return draft_rows_[slot];
}

TokenId DeviceSlots::DrawFrom(absl::Span<const float> weights, int slot) {
  return DrawFromWeights(weights, draft_.random, draft_.places.At(RandomStream::kResidual, slot));
}

}  // namespace tandem
