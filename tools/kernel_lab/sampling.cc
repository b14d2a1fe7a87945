// Rows of the vocabulary: distributions, draws and the largest entry.
#include <algorithm>
#include <cmath>

#include "kernels/cuda/operations.h"
#include "kernels/row_sums.h"
#include "kernels/row_tasks.h"
#include "tools/kernel_lab/lab.h"

namespace tandem::kernel_lab {
namespace {

constexpr float kInverseTemperature = 4.0f;
constexpr float kTopP = 0.95f;
constexpr int kTopK = 40;
constexpr int kSamplingCopies = 8;

struct SampledRows {
  const float* logits = nullptr;  // [rows, vocab]
  float* probs = nullptr;         // [rows, vocab]
  std::vector<RowTask> tasks;
};

SampledRows MakeRows(Lab& lab, const Line& line, int count) {
  const int vocab = line.model->vocab;
  SampledRows rows;
  rows.logits = static_cast<const float*>(lab.At(lab.Floats(), 0));
  rows.probs = static_cast<float*>(lab.Allocate(size_t{4} * count * vocab));
  for (int row = 0; row < count; ++row) {
    RowTask task;
    task.logits = rows.logits + int64_t{row} * vocab;
    task.probs = rows.probs + int64_t{row} * vocab;
    task.size = vocab;
    task.inverse_temperature = kInverseTemperature;
    if (line.op == "top_k") task.top_k = kTopK;
    if (line.op == "top_p") task.enough = UnitsToReach(kTopP);
    rows.tasks.push_back(task);
  }
  return rows;
}

// The distribution in double precision, and the number of entries that it keeps.
struct Expected {
  std::vector<double> probs;
  int num_kept = 0;
};
Expected ExpectedRow(const Pool& floats, const Line& line, int row) {
  const int vocab = line.model->vocab;
  std::vector<double> logits(vocab);
  for (int v = 0; v < vocab; ++v) {
    logits[v] = floats.Read<float>(size_t{4} * (int64_t{row} * vocab + v)) * kInverseTemperature;
  }
  const double largest = *std::max_element(logits.begin(), logits.end());
  Expected expected;
  double total = 0.0;
  for (const double logit : logits) {
    expected.probs.push_back(std::exp(logit - largest));
    total += expected.probs.back();
  }
  std::vector<double> sorted = expected.probs;
  std::sort(sorted.rbegin(), sorted.rend());
  expected.num_kept = line.op == "top_k" ? kTopK : vocab;
  if (line.op == "top_p") {
    double sum = 0.0;
    for (expected.num_kept = 0; sum < kTopP * total; ++expected.num_kept) {
      sum += sorted[expected.num_kept];
    }
  }
  double kept = 0.0;
  for (int i = 0; i < expected.num_kept; ++i) kept += sorted[i];
  for (double& prob : expected.probs) prob /= kept;
  return expected;
}

// The pattern repeats, so an entry may occur several times, and the cut may fall among equals.
void CompareRow(const Expected& expected, const std::vector<float>& got, Comparison* comparison) {
  int num_kept = 0;
  for (size_t v = 0; v < got.size(); ++v) {
    if (got[v] <= 0.0f) continue;
    ++num_kept;
    comparison->CompareNear(got[v], expected.probs[v], 1e-3 * expected.probs[v] + 1e-37);
  }
  comparison->CompareNear(num_kept, expected.num_kept, 2.0 + 1e-3 * expected.num_kept);
}

void MeasureDistributions(Lab& lab, const Line& line, JsonLine* json) {
  const int vocab = line.model->vocab;
  const SampledRows rows = MakeRows(lab, line, line.rows);
  cuda::DistributionsTask task;
  task.rows = lab.Upload(rows.tasks);
  task.states = static_cast<RowState*>(lab.Allocate(sizeof(RowState) * line.rows));
  task.num_rows = line.rows;
  task.variant = line.variant;
  if (!lab.ok()) return;
  lab.Poison(rows.probs, size_t{4} * line.rows * vocab);
  lab.Run(task, "distributions");
  const std::vector<RowState> states = lab.Download<RowState>(task.states, line.rows);
  const int row = line.rows - 1;
  const std::vector<uint32_t> got =
      lab.Download<uint32_t>(rows.probs + int64_t{row} * vocab, vocab);
  Comparison comparison;
  for (const RowState state : states) {
    comparison.CompareNear(static_cast<int>(state), static_cast<int>(RowState::kDistribution), 0);
  }
  // The row alone, by the first variant.
  cuda::DistributionsTask alone = task;
  alone.rows = task.rows + row;
  alone.num_rows = 1;
  alone.variant = 0;
  if (lab.ok()) lab.Poison(rows.probs + int64_t{row} * vocab, size_t{4} * vocab);
  lab.Run(alone, "one distribution");
  comparison.Compare(got, lab.Download<uint32_t>(rows.probs + int64_t{row} * vocab, vocab));
  std::vector<float> floats(vocab);
  std::memcpy(floats.data(), got.data(), got.size() * 4);
  CompareRow(ExpectedRow(lab.Floats(), line, row), floats, &comparison);
  AddComparison(comparison, json);
  TimeParts(
      lab, kSamplingCopies, 0.0, [&](int) { lab.Run(task, "distributions"); }, json);
}

void MeasureArgMax(Lab& lab, const Line& line, JsonLine* json) {
  const int vocab = line.model->vocab;
  const ConstMatrixView x(lab.At(lab.Floats(), 0), DType::kF32, line.rows, vocab, vocab);
  const cuda::ArgMaxTask task{
      .x = x, .largest = static_cast<int32_t*>(lab.Allocate(size_t{4} * line.rows))};
  if (!lab.ok()) return;
  lab.Poison(task.largest, size_t{4} * line.rows);
  lab.Run(task, "argmax");
  const std::vector<int32_t> got = lab.Download<int32_t>(task.largest, line.rows);
  Comparison comparison;
  for (int row = 0; row < line.rows; ++row) {
    int largest = 0;
    const auto at = [&](int v) {
      return lab.Floats().Read<float>(size_t{4} * (int64_t{row} * vocab + v));
    };
    for (int v = 1; v < vocab; ++v) largest = at(v) > at(largest) ? v : largest;
    comparison.CompareNear(got[row], largest, 0);
  }
  AddComparison(comparison, json);
  TimeParts(
      lab, kSamplingCopies, 0.0, [&](int) { lab.Run(task, "argmax"); }, json);
}

// Draws from the target's distributions, or from the residuals of drafts: twice with equal results,
// of tokens that have mass.
void MeasureDraws(Lab& lab, const Line& line, JsonLine* json) {
  const int vocab = line.model->vocab;
  const bool is_residual = line.op == "draw_residual";
  const SampledRows rows = MakeRows(lab, line, line.rows + 1);
  cuda::DistributionsTask make;
  make.rows = lab.Upload(rows.tasks);
  make.states = static_cast<RowState*>(lab.Allocate(sizeof(RowState) * (line.rows + 1)));
  make.num_rows = line.rows + 1;
  std::vector<SlotTask> slots(line.rows);
  for (int row = 0; row < line.rows; ++row) {
    SlotTask& slot = slots[row];
    slot.target = rows.probs + int64_t{row} * vocab;
    slot.draft = is_residual ? slot.target + vocab : nullptr;
    slot.target_size = vocab;
    slot.draft_size = is_residual ? vocab : 0;
    slot.token = is_residual ? 1 + row : -1;
    slot.draw = is_residual ? SlotDraw::kTokenResidual : SlotDraw::kTarget;
    slot.first_slot = row;
    slot.counter[0] = static_cast<uint32_t>(row);
    slot.key = 12345;
  }
  cuda::SlotsTask task;
  task.slots = lab.Upload(slots);
  task.answers = static_cast<SlotAnswer*>(lab.Allocate(sizeof(SlotAnswer) * line.rows));
  task.num_slots = line.rows;
  if (!lab.ok()) return;
  lab.Run(make, "distributions");
  std::vector<SlotAnswer> answers[2];
  for (std::vector<SlotAnswer>& of_run : answers) {
    lab.Poison(task.answers, sizeof(SlotAnswer) * line.rows);
    lab.Run(task, "draws");
    of_run = lab.Download<SlotAnswer>(task.answers, line.rows);
  }
  const std::vector<float> probs = lab.Download<float>(rows.probs, size_t(line.rows + 1) * vocab);
  if (!lab.ok()) return;
  Comparison comparison;
  for (int row = 0; row < line.rows; ++row) {
    const SlotAnswer& answer = answers[0][row];
    comparison.CompareNear(answer.drawn, answers[1][row].drawn, 0);
    const bool is_token = answer.drawn >= 0 && answer.drawn < vocab;
    comparison.CompareNear(is_token ? 1 : 0, 1, 0);
    if (!is_token) continue;
    const float* const target = probs.data() + size_t(row) * vocab;
    const float mass = target[answer.drawn] - (is_residual ? target[vocab + answer.drawn] : 0.0f);
    comparison.CompareNear(mass > 0.0f ? 1 : 0, 1, 0);
  }
  AddComparison(comparison, json);
  TimeParts(
      lab, kSamplingCopies, 0.0, [&](int) { lab.Run(task, "draws"); }, json);
}

}  // namespace

void MeasureSampling(Lab& lab, const Line& line, JsonLine* json) {
  lab.Floats();
  if (!lab.ok()) return;
  if (line.op == "argmax") return MeasureArgMax(lab, line, json);
  if (line.op.rfind("draw", 0) == 0) return MeasureDraws(lab, line, json);
  MeasureDistributions(lab, line, json);
}

}  // namespace tandem::kernel_lab
